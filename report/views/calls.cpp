#include "report/views/calls.hpp"

#include "report/symbols/frame_choice.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

bool is_python_binary(const StackFrame& frame) {
    const std::string module = base_name(frame.module);
    return module.starts_with("python") || module.starts_with("libpython");
}

/// What every allocation of a framework passes. A frame without a name may be anything.
bool is_noise(const StackFrame& frame) {
    return is_framework_plumbing(frame) && (!frame.function.empty() || is_python_binary(frame));
}

/// Of the C library: what it does before main or a thread's function.
bool is_librarys(const StackFrame& frame) {
    if (frame.python) {
        return false;
    }
    const std::string module = base_name(frame.module);
    return module.starts_with("libc.so") || module.starts_with("ld-linux") ||
           module.starts_with("libpthread") || module.starts_with("libstdc++.so");
}

/// How many of the frames lie inside of the C library's start code; `least` at least.
std::size_t end_of_program(const std::vector<StackFrame>& frames, std::size_t least) {
    std::size_t end = frames.size();
    // _start lies in the program itself, and may have no name.
    if (end >= least + 2 && (frames[end - 1].function == "_start" ||
                             (frames[end - 1].function.empty() && is_librarys(frames[end - 2])))) {
        --end;
    }
    while (end > least && is_librarys(frames[end - 1])) {
        --end;
    }
    return end;
}

}  // namespace

const std::vector<Place>& Calls::of(std::size_t stack) {
    auto [entry, is_new] = calls_.try_emplace(stack);
    std::vector<Place>& calls = entry->second;
    if (!is_new) {
        return calls;
    }
    const std::vector<StackFrame>& frames = resolver_.frames(stack);
    if (frames.empty()) {
        calls.emplace_back();
        return calls;
    }
    const std::size_t chosen = resolver_.chosen(stack);
    const std::size_t end = all_frames_ ? frames.size() : end_of_program(frames, chosen + 1);
    for (std::size_t i = all_frames_ ? 0 : chosen; i < end; ++i) {
        if (all_frames_ || i == chosen || !is_noise(frames[i])) {
            calls.push_back(place_of(frames[i]));
        }
    }
    return calls;
}

Place Calls::place_of(const StackFrame& frame) {
    Place place;
    place.recorded = true;
    if (frame.python) {
        place.function = frame.function;
    } else {
        const auto [name, is_new] = short_names_.try_emplace(frame.function);
        if (is_new) {
            name->second = short_function_name(frame.function);
        }
        place.function = name->second;
    }
    place.file = frame.file;
    place.line = frame.line;
    place.module = frame.module;
    place.address = frame.file.empty() && frame.function.empty() ? frame.address : 0;
    return place;
}

}  // namespace memlab::report
