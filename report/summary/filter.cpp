#include "report/summary/filter.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "report/summary/summary.hpp"
#include "report/text/names.hpp"
#include "report/text/patterns.hpp"

namespace memlab::report {

std::string Filter::add(const std::string& given) {
    static constexpr std::array<Key, 5> keys = {Key::function, Key::file, Key::module, Key::scope,
                                                Key::kind};
    static const std::vector<std::string_view> names = {"func", "file", "module", "scope", "kind"};
    const KeyedPattern split = split_pattern(given, names);
    if (!split.problem.empty()) {
        return split.problem;
    }
    Pattern pattern{Key::any, split.text, given};
    if (const auto name = std::find(names.begin(), names.end(), split.key); name != names.end()) {
        pattern.key = keys.at(static_cast<std::size_t>(name - names.begin()));
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

std::vector<bool> Filter::escaped_sites(const Pattern& pattern, const model::Report& report) {
    std::vector<bool> result(report.sites.size(), false);
    for (std::size_t i = 0; i < report.scopes.size(); ++i) {
        if (matches_text(pattern.text, scope_path(report, i))) {
            for (const model::Holders::Share& share : report.scopes[i].escaped.sites) {
                result.at(share.site) = true;
            }
        }
    }
    return result;
}

std::vector<bool> Filter::sites(const model::Report& report, Resolver& resolver) const {
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
