#include "report/summary/filter.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "report/nn_module_parts.hpp"
#include "report/summary/summary.hpp"
#include "report/text/names.hpp"
#include "report/text/patterns.hpp"

namespace memlab::report {

std::string Filter::add(const std::string& given) {
    static constexpr std::array<Key, 6> keys = {Key::function, Key::file, Key::module,
                                                Key::scope,    Key::kind, Key::nn_module};
    static const std::vector<std::string_view> names = {"func",  "file", "module",
                                                        "scope", "kind", "nn_module"};
    const KeyedPattern split = split_pattern(given, names);
    if (!split.problem.empty()) {
        return split.problem;
    }
    Pattern pattern{Key::any, split.text, given};
    if (const auto name = std::find(names.begin(), names.end(), split.key); name != names.end()) {
        pattern.key = keys.at(static_cast<std::size_t>(name - names.begin()));
    }
    if (pattern.key == Key::nn_module && !nn_modules_) {
        return "cannot choose by nn_module=: what is shown here is not recorded by nn.Module";
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
        return pattern.key == Key::scope || pattern.key == Key::nn_module ||
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
    for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = result[report.sites[i].part ? report.sites[i].part->of : i];
    }
    return result;
}

std::vector<bool> Filter::sites(const model::Report& report, Resolver& resolver) const {
    std::vector<bool> result = sites_of_any_nn_module(report, resolver);
    if (by_nn_module()) {
        const std::vector<bool> named = nn_modules(report);
        for (std::size_t i = 0; i < result.size(); ++i) {
            const auto& part = report.sites[i].part;
            result[i] = result[i] && part && named[part->nn_modules];
        }
    }
    return result;
}

std::vector<bool> Filter::sites_of_any_nn_module(const model::Report& report,
                                                 Resolver& resolver) const {
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

bool Filter::by_nn_module() const {
    return std::any_of(patterns_.begin(), patterns_.end(),
                       [](const Pattern& pattern) { return pattern.key == Key::nn_module; });
}

std::vector<bool> Filter::nn_modules(const model::Report& report) const {
    std::vector<bool> result(report.nn_modules.size(), true);
    for (const Pattern& pattern : patterns_) {
        if (pattern.key == Key::nn_module) {
            const std::vector<bool> named = matching_nn_modules(pattern.text, report);
            for (std::size_t i = 0; i < result.size(); ++i) {
                result[i] = result[i] && named[i];
            }
        }
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
