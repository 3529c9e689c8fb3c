#include "report/symbols/resolver.hpp"

#include <filesystem>
#include <set>
#include <utility>

#include "report/text/names.hpp"

namespace memlab::report {

namespace {

/// "/src/./a.py" and "/src/b/../a.py" are "/src/a.py": a place is known by its file's name.
std::string one_spelling(const std::string& file) {
    return file.find("./") == std::string::npos && file.find("//") == std::string::npos
               ? file
               : std::filesystem::path(file).lexically_normal().string();
}

}  // namespace

Resolver::Resolver(const model::Report& report, Symbolizer* symbolizer, FrameSkips skips)
    : report_(report),
      symbolizer_(symbolizer),
      skips_(std::move(skips)),
      of_frame_(report.frames.size()),
      chosen_(report.stacks.size()) {}

const std::vector<StackFrame>& Resolver::frames(std::size_t stack) {
    if (const auto known = cache_.find(stack); known != cache_.end()) {
        return known->second;
    }
    if (cache_order_.size() == max_cached) {
        cache_.erase(cache_order_.front());
        cache_order_.pop_front();
    }
    cache_order_.push_back(stack);
    std::vector<StackFrame>& frames = cache_[stack];
    fill(stack, frames);
    return frames;
}

const Place& Resolver::place(std::size_t stack) {
    return *choose(stack).place;
}

std::size_t Resolver::chosen(std::size_t stack) {
    return choose(stack).frame;
}

std::string Resolver::missing_names() const {
    std::set<std::string> gone;
    std::set<std::string> changed;
    for (const Place& place : places_) {
        if (!place.function.empty() || place.module.empty()) {
            continue;
        }
        if (place.problem == "binary changed") {
            changed.insert(place.module);
        } else if (place.problem == "file not found") {
            gone.insert(place.module);
        }
    }
    constexpr std::size_t max_named = 3;
    const auto list = [](const std::set<std::string>& modules, const char* one, const char* many) {
        std::string text;
        std::size_t named = 0;
        for (const std::string& module : modules) {
            if (named++ == max_named) {
                text += " and " + std::to_string(modules.size() - max_named) + " more";
                break;
            }
            text += (text.empty() ? "" : ", ") + base_name(module);
        }
        return text + (modules.size() == 1 ? one : many);
    };
    // A compiler's, made while the program ran and removed since: it is available nowhere.
    std::erase_if(gone, [](const std::string& module) {
        return module.starts_with("/tmp/") || module.starts_with("/var/tmp/") ||
               module.starts_with("/dev/shm/") || module.starts_with("/memfd:");
    });
    std::string text;
    if (!gone.empty()) {
        text = list(gone, " is not on this machine", " are not on this machine");
    }
    if (!changed.empty()) {
        text += (text.empty() ? "" : "; ") +
                list(changed, " is not the binary that ran (its build id differs)",
                     " are not the binaries that ran (their build ids differ)");
    }
    return text.empty()
               ? text
               : "Names are missing: " + text +
                     ". memlab-report symbolize, run where it was recorded, puts them into "
                     "the report; --debuginfod asks servers for them.";
}

void Resolver::add_frames(std::size_t frame, std::vector<StackFrame>& out) {
    const std::vector<StackFrame>& frames = of_frame(frame);
    out.insert(out.end(), frames.begin(), frames.end());
}

const std::vector<StackFrame>& Resolver::of_frame(std::size_t frame) {
    std::optional<std::vector<StackFrame>>& known = of_frame_.at(frame);
    if (!known) {
        resolve_frame(frame, known.emplace());
        for (StackFrame& each : *known) {
            classify(each, skips_);
        }
    }
    return *known;
}

/// Overwrites `out`, reusing its memory.
void Resolver::fill(std::size_t stack, std::vector<StackFrame>& out) {
    std::size_t count = 0;
    for (const std::size_t frame : report_.stacks.at(stack).frames) {
        for (const StackFrame& each : of_frame(frame)) {
            if (count < out.size()) {
                out[count] = each;
            } else {
                out.push_back(each);
            }
            ++count;
        }
    }
    out.resize(count);
}

void Resolver::resolve_frame(std::size_t index, std::vector<StackFrame>& out) {
    const model::Frame& frame = report_.frames.at(index);
    StackFrame base;
    if (frame.python != 0) {
        const model::PythonFrame& python = report_.python_frames.at(frame.python);
        base.function = python.function;
        base.file = one_spelling(python.file);
        base.line = static_cast<int>(python.line);
        base.first_line = static_cast<int>(python.first_line);
        base.python = true;
        out.push_back(std::move(base));
        return;
    }
    const model::Module& module = report_.modules.at(frame.module);
    base.module = module.path;
    base.address = frame.address;
    if (symbolizer_ == nullptr || module.path.empty()) {
        base.problem = module.path.empty() ? "unknown module" : "";
        out.push_back(std::move(base));
        return;
    }
    const std::vector<model::SourceFrame>* sources = &frame.source;
    if (sources->empty()) {
        const ResolvedAddress& resolved =
            symbolizer_->resolve(module.path, module.build_id, frame.address);
        base.problem = resolved.problem;
        sources = &resolved.frames;
    }
    if (sources->empty()) {
        out.push_back(std::move(base));
        return;
    }
    for (const model::SourceFrame& source : *sources) {
        StackFrame shown = base;
        shown.function = source.function;
        shown.file = source.file;
        shown.line = source.line;
        shown.inlined = source.inlined;
        out.push_back(std::move(shown));
    }
}

const Resolver::Chosen& Resolver::choose(std::size_t stack) {
    Chosen& known = chosen_.at(stack);
    if (known.place != nullptr) {
        return known;
    }
    fill(stack, scratch_);
    known.frame = choose_frame(scratch_);
    Place place;
    if (known.frame != no_frame) {
        const StackFrame& frame = scratch_[known.frame];
        place.recorded = true;
        place.function = frame.python ? frame.function : short_function_name(frame.function);
        place.file = frame.file;
        place.line = frame.line;
        place.module = frame.module;
        // Two calls on one line are one place; without a line, the address distinguishes them.
        place.address = frame.file.empty() ? frame.address : 0;
        place.through = backward_node(scratch_, known.frame);
        if (place.through.empty()) {
            place.through = through_library(scratch_, known.frame);
        }
        place.problem = frame.problem;
    } else if (report_.stacks.at(stack).truncated) {
        place.recorded = true;
        place.function = "(other stacks)";  // beyond MEMLAB_MAX_STACKS
    }
    known.place = &*places_.insert(std::move(place)).first;
    return known;
}

}  // namespace memlab::report
