#include "report/views/call_chains.hpp"

#include "report/symbols/frame_choice.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

/// True for frames of the C and C++ runtime libraries, which call main and the functions of
/// threads.
bool is_runtime_library(const StackFrame& frame) {
    if (frame.python) {
        return false;
    }
    const std::string module = base_name(frame.module);
    return module.starts_with("libc.so") || module.starts_with("ld-linux") ||
           module.starts_with("libpthread") || module.starts_with("libstdc++.so");
}

/// The number of frames without the outermost ones of startup code; at least `min`.
std::size_t count_program_frames(const std::vector<StackFrame>& frames, std::size_t min) {
    std::size_t end = frames.size();
    // _start is in the program itself, and may be unnamed.
    if (end >= min + 2 &&
        (frames[end - 1].function == "_start" ||
         (frames[end - 1].function.empty() && is_runtime_library(frames[end - 2])))) {
        --end;
    }
    while (end > min && is_runtime_library(frames[end - 1])) {
        --end;
    }
    return end;
}

}  // namespace

const std::vector<Place>& CallChains::chain(std::size_t stack) {
    auto [entry, is_new] = chains_.try_emplace(stack);
    std::vector<Place>& chain = entry->second;
    if (!is_new) {
        return chain;
    }
    const std::vector<StackFrame>& frames = resolver_.frames(stack);
    if (frames.empty()) {
        chain.emplace_back();
        return chain;
    }
    const std::vector<bool> wanted = shown(stack);
    for (std::size_t i = 0; i < frames.size(); ++i) {
        if (wanted[i]) {
            chain.push_back(make_place(frames[i]));
        }
    }
    return chain;
}

std::vector<bool> CallChains::shown(std::size_t stack) {
    const std::vector<StackFrame>& frames = resolver_.frames(stack);
    std::vector<bool> shown(frames.size(), all_frames_);
    if (all_frames_ || frames.empty()) {
        return shown;
    }
    const std::size_t chosen = resolver_.chosen(stack);
    const BackwardFrames backward = backward_frames(frames, chosen);
    for (const std::size_t i : {backward.node, backward.marker}) {
        if (i != no_frame) {
            shown[i] = true;
        }
    }
    const std::size_t end = count_program_frames(frames, chosen + 1);
    for (std::size_t i = chosen; i < end; ++i) {
        shown[i] = i == chosen || !frames[i].is_plumbing();
    }
    return shown;
}

Place CallChains::make_place(const StackFrame& frame) {
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
