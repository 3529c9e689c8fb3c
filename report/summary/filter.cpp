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

std::string Filter::add(const std::string& given) {
    static constexpr std::array<std::pair<std::string_view, Key>, 5> keys = {{
        {"func", Key::function},
        {"file", Key::file},
        {"module", Key::module},
        {"scope", Key::scope},
        {"kind", Key::kind},
    }};
    Pattern pattern{Key::any, given, given};
    const std::size_t equals = given.find('=');
    const std::string word = given.substr(0, equals);
    if (equals != std::string::npos && is_word(word)) {
        const auto* const key = std::find_if(keys.begin(), keys.end(),
                                             [&](const auto& each) { return each.first == word; });
        if (key == keys.end()) {
            return "takes func=, file=, module=, scope= or kind=, not " + word +
                   "=; for a name with = in it write func=" + given;
        }
        pattern.key = key->second;
        pattern.text = given.substr(equals + 1);
    }
    if (pattern.text.empty()) {
        return "takes a text to look for, not " + (given.empty() ? "nothing" : given);
    }
    patterns_.push_back(std::move(pattern));
    return {};
}

bool Filter::frame_matches(const Pattern& pattern, const StackFrame& frame) {
    const bool any = pattern.key == Key::any;
    if (any || pattern.key == Key::function) {
        if (matches_text(pattern.text, frame.function) ||
            (!frame.python && matches_text(pattern.text, short_function_name(frame.function)))) {
            return true;
        }
    }
    return ((any || pattern.key == Key::file) && matches_text(pattern.text, frame.file)) ||
           ((any || pattern.key == Key::module) && matches_text(pattern.text, frame.module));
}

bool Filter::matches(const std::string& kind, const std::vector<StackFrame>& frames) const {
    return std::all_of(patterns_.begin(), patterns_.end(), [&](const Pattern& pattern) {
        return pattern.key == Key::scope ||
               (pattern.key == Key::kind
                    ? matches_text(pattern.text, kind)
                    : std::any_of(frames.begin(), frames.end(), [&](const StackFrame& frame) {
                          return frame_matches(pattern, frame);
                      }));
    });
}

std::vector<bool> Filter::escaped_sites(const Pattern& pattern, const Report& report) {
    std::vector<bool> result(report.sites.size(), false);
    for (std::size_t i = 0; i < report.scopes.size(); ++i) {
        if (matches_text(pattern.text, scope_path(report, i))) {
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
    for (const Pattern& pattern : patterns_) {
        if (pattern.key == Key::scope) {
            const std::vector<bool> named = escaped_sites(pattern, report);
            for (std::size_t i = 0; i < result.size(); ++i) {
                result[i] = result[i] && named[i];
            }
        }
    }
    for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] =
            result[i] && matches(report.sites[i].kind, resolver.frames(report.sites[i].stack));
    }
    return result;
}

std::string Filter::text() const {
    std::string text;
    for (const Pattern& pattern : patterns_) {
        text.append(text.empty() ? "" : ", ").append(pattern.given);
    }
    return text;
}

}  // namespace memlab::report
