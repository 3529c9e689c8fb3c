#include "report/symbols/frame_skips.hpp"

#include <algorithm>

#include "report/text/names.hpp"
#include "report/text/patterns.hpp"

namespace memlab::report {

std::string FrameSkips::add(const std::string& given) {
    KeyedPattern split = split_pattern(given, {"func", "file", "module"});
    if (!split.problem.empty()) {
        return split.problem;
    }
    const Key key = split.key == "func"     ? Key::function
                    : split.key == "file"   ? Key::file
                    : split.key == "module" ? Key::module
                                            : Key::any;
    patterns_.push_back({key, std::move(split.text)});
    return {};
}

bool FrameSkips::skips(const StackFrame& frame) const {
    if (patterns_.empty()) {
        return false;
    }
    const std::string name = frame.python ? frame.function : bare_function_name(frame.function);
    const auto names_function = [&](const std::string& text) {
        return matches_text(text,
                            text.find_first_of("<(") == std::string::npos ? name : frame.function);
    };
    return std::any_of(patterns_.begin(), patterns_.end(), [&](const Pattern& pattern) {
        const std::string& text = pattern.text;
        switch (pattern.key) {
            case Key::function:
                return names_function(text);
            case Key::file:
                return matches_text(text, frame.file);
            case Key::module:
                return matches_text(text, frame.module);
            case Key::any:
                break;
        }
        return names_function(text) || matches_text(text, frame.file) ||
               matches_text(text, base_name(frame.module));
    });
}

}  // namespace memlab::report
