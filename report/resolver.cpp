#include "report/resolver.hpp"

namespace memlab::report {

Resolver::Resolver(const Report& report, Symbolizer* symbolizer)
    : report_(report), symbolizer_(symbolizer) {}

const std::vector<StackFrame>& Resolver::frames(std::size_t stack) {
    return resolve(stack).frames;
}

const Place& Resolver::place(std::size_t stack) {
    return resolve(stack).place;
}

std::size_t Resolver::chosen(std::size_t stack) {
    return resolve(stack).chosen;
}

std::vector<std::string> Resolver::changed_modules() const {
    std::vector<std::string> modules;
    for (const auto& [path, changed] : changed_) {
        if (changed) {
            modules.push_back(path);
        }
    }
    return modules;
}

void Resolver::add_frames(std::size_t index, std::vector<StackFrame>& out) {
    const Frame& frame = report_.frames.at(index);
    StackFrame base;
    if (frame.python != 0) {
        const PythonFrame& python = report_.python_frames.at(frame.python);
        base.function = python.function;
        base.file = python.file;
        base.line = python.line;
        base.first_line = python.first_line;
        base.python = true;
        out.push_back(std::move(base));
        return;
    }
    const Module& module = report_.modules.at(frame.module);
    base.module = module.path;
    base.address = frame.address;
    if (symbolizer_ == nullptr || module.path.empty()) {
        base.problem = module.path.empty() ? "unknown module" : "";
        out.push_back(std::move(base));
        return;
    }
    const std::vector<SourceFrame>* sources = &frame.source;
    if (sources->empty()) {
        const ResolvedAddress& resolved =
            symbolizer_->resolve(module.path, module.build_id, frame.address);
        base.problem = resolved.problem;
        changed_[module.path] |= resolved.problem == "binary changed";
        sources = &resolved.frames;
    }
    if (sources->empty()) {
        out.push_back(std::move(base));
        return;
    }
    for (const SourceFrame& source : *sources) {
        StackFrame shown = base;
        shown.function = source.function;
        shown.file = source.file;
        shown.line = source.line;
        shown.inlined = source.inlined;
        out.push_back(std::move(shown));
    }
}

const Resolver::Resolved& Resolver::resolve(std::size_t stack) {
    auto [entry, is_new] = resolved_.try_emplace(stack);
    Resolved& resolved = entry->second;
    if (!is_new) {
        return resolved;
    }
    for (const std::size_t frame : report_.stacks.at(stack).frames) {
        add_frames(frame, resolved.frames);
    }
    resolved.chosen = choose_frame(resolved.frames);
    if (resolved.chosen == no_frame) {
        return resolved;
    }
    const StackFrame& frame = resolved.frames[resolved.chosen];
    Place& place = resolved.place;
    place.recorded = true;
    place.function = frame.python ? frame.function : short_function_name(frame.function);
    place.file = frame.file;
    place.line = frame.line;
    place.module = frame.module;
    // Two calls on one line are one place; without a line the address tells them apart.
    place.address = frame.file.empty() ? frame.address : 0;
    place.through = through_library(resolved.frames, resolved.chosen);
    place.problem = frame.problem;
    return resolved;
}

}  // namespace memlab::report
