#include "report/summary/filter.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <utility>

#include "report/summary/summary.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

bool is_word(std::string_view text) {
    return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == text.npos;
}

}  // namespace

bool matches_text(const std::string& pattern, const std::string& name) {
    if (name.empty()) {
        return false;
    }
    if (pattern.find_first_of("*?[") == std::string::npos) {
        return name.find(pattern) != std::string::npos;
    }
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0 ||
           fnmatch(pattern.c_str(), base_name(name).c_str(), 0) == 0;
}

std::string Filter::add(const std::string& pattern) {
    static constexpr std::array<std::pair<std::string_view, Key>, 5> keys = {{
        {"func", Key::function},
        {"file", Key::file},
        {"module", Key::module},
        {"scope", Key::scope},
        {"kind", Key::kind},
    }};
    Test test{Key::any, pattern, pattern};
    const std::size_t equals = pattern.find('=');
    const std::string word = pattern.substr(0, equals);
    if (equals != std::string::npos && is_word(word)) {
        const auto* const key = std::find_if(keys.begin(), keys.end(),
                                             [&](const auto& each) { return each.first == word; });
        if (key == keys.end()) {
            return "takes func=, file=, module=, scope= or kind=, not " + word +
                   "=; for a name with = in it write func=" + pattern;
        }
        test.key = key->second;
        test.pattern = pattern.substr(equals + 1);
    }
    if (test.pattern.empty()) {
        return "takes a text to look for, not " + (pattern.empty() ? "nothing" : pattern);
    }
    tests_.push_back(std::move(test));
    return {};
}

bool Filter::frame_matches(const Test& test, const StackFrame& frame) {
    const bool any = test.key == Key::any;
    if (any || test.key == Key::function) {
        if (matches_text(test.pattern, frame.function) ||
            (!frame.python && matches_text(test.pattern, short_function_name(frame.function)))) {
            return true;
        }
    }
    return ((any || test.key == Key::file) && matches_text(test.pattern, frame.file)) ||
           ((any || test.key == Key::module) && matches_text(test.pattern, frame.module));
}

bool Filter::takes(const std::string& kind, const std::vector<StackFrame>& frames) const {
    return std::all_of(tests_.begin(), tests_.end(), [&](const Test& test) {
        return test.key == Key::scope ||
               (test.key == Key::kind
                    ? matches_text(test.pattern, kind)
                    : std::any_of(frames.begin(), frames.end(), [&](const StackFrame& frame) {
                          return frame_matches(test, frame);
                      }));
    });
}

std::vector<bool> Filter::outlived(const Test& test, const Report& report) {
    std::vector<bool> result(report.sites.size(), false);
    for (std::size_t i = 0; i < report.scopes.size(); ++i) {
        if (matches_text(test.pattern, scope_path(report, i))) {
            for (const Holders::Share& share : report.scopes[i].escaped.sites) {
                result.at(share.site) = true;
            }
        }
    }
    return result;
}

std::vector<bool> Filter::sites(const Report& report, Resolver& resolver) const {
    std::vector<bool> result(report.sites.size(), true);
    if (empty()) {
        return result;
    }
    for (const Test& test : tests_) {
        if (test.key == Key::scope) {
            const std::vector<bool> named = outlived(test, report);
            for (std::size_t i = 0; i < result.size(); ++i) {
                result[i] = result[i] && named[i];
            }
        }
    }
    for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] =
            result[i] && takes(report.sites[i].kind, resolver.frames(report.sites[i].stack));
    }
    return result;
}

std::string Filter::text() const {
    std::string text;
    for (const Test& test : tests_) {
        text.append(text.empty() ? "" : ", ").append(test.given);
    }
    return text;
}

}  // namespace memlab::report
