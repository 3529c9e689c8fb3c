#include "report/html/page_code.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "report/symbols/frame_choice.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

std::int64_t TextTable::number(std::string_view text) {
    if (text.empty()) {
        return -1;
    }
    const auto [at, is_new] = numbers_.try_emplace(std::string(text.substr(0, max_text)),
                                                   static_cast<std::int64_t>(texts_.size()));
    if (is_new) {
        texts_.push_back(at->first);
    }
    return at->second;
}

namespace {

unsigned choice_of(const StackFrame& frame) {
    return static_cast<unsigned>(frame.rank) | (frame.function.empty() ? 0U : has_name) |
           (is_backward_node(frame) ? is_backward_operator : 0U) |
           (frame.is_forward_marker() ? is_forward_marker : 0U) |
           (frame.skipped ? is_skipped_already : 0U);
}

}  // namespace

/// As the views name it: "libcublas.so.13+0x1a5e" without a name.
std::string CodeTable::function_of(const StackFrame& frame) {
    if (frame.function.empty()) {
        std::string module = frame.module.empty() ? "[unknown]" : base_name(frame.module);
        if (frame.module.empty() && frame.address == 0) {
            return module;
        }
        std::array<char, 16> digits{};
        const auto end =
            std::to_chars(digits.data(), digits.data() + digits.size(), frame.address, 16);
        return module + "+0x" + std::string(digits.data(), end.ptr);
    }
    if (frame.python) {
        return frame.function;
    }
    const auto [name, is_new] = short_names_.try_emplace(frame.function);
    if (is_new) {
        name->second = short_function_name(frame.function);
    }
    return name->second;
}

CodeTable::Stack CodeTable::stack(std::size_t stack) {
    Stack made;
    const std::size_t chosen = resolver_.chosen(stack);
    const std::vector<bool> shown = chains_.shown(stack);
    made.through = texts_.number(resolver_.place(stack).through);
    const std::vector<StackFrame>& frames = resolver_.frames(stack);
    std::vector<std::size_t>& numbers = made.frames;
    const std::size_t depth = std::min(frames.size(), max_depth);
    numbers.reserve(depth);
    if (chosen < depth) {
        made.place = static_cast<std::int64_t>(depth - 1 - chosen);
    }
    for (std::size_t i = 0; i < depth; ++i) {
        const StackFrame& frame = frames[i];
        const PageFrame here{texts_.number(function_of(frame)),
                             texts_.number(frame.file),
                             std::max(frame.line, 0),
                             texts_.number(frame.module),
                             frame.python,
                             !shown[i],
                             choice_of(frame)};
        const auto [at, is_new] = numbers_.try_emplace(here, frames_.size());
        if (is_new) {
            frames_.push_back(here);
        }
        numbers.push_back(at->second);
    }
    std::reverse(numbers.begin(), numbers.end());
    return made;
}

}  // namespace memlab::report
