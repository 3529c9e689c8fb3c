#include "report/inefficiencies/inefficiencies.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "report/device_label.hpp"
#include "report/inefficiencies/collect_patterns.hpp"
#include "report/lacks.hpp"
#include "report/reading/needs_log.hpp"
#include "report/steps.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

bool uses_device_memory(const model::Report& report) {
    return std::any_of(report.devices.begin(), report.devices.end(), [](const auto& device) {
        return device.used() && !is_outside_curves_only(device);
    });
}

std::vector<std::string> make_notes(const model::Report& report, const CollectedPatterns& patterns,
                                    const model::Steps* steps) {
    std::vector<std::string> notes;
    if (steps != nullptr && steps->verdict == "growing" && !steps->by_site) {
        notes.push_back("Memory grows by " +
                        format_bytes(static_cast<std::uint64_t>(
                            std::max(std::llround(steps->trend.bytes_per_step), 0LL))) +
                        " from one step to the next. Which call sites grow is not known: other "
                        "kinds of steps began first.");
    }
    if (steps == nullptr && uses_device_memory(report)) {
        notes.push_back(
            "The program marks no steps and none were found, so memory that outlives a step or "
            "grows with steps is not found: docs/scopes.md shows how to mark them.");
    }
    if (report.process.ended == "running" || report.process.ended == "cut off" ||
        recording_stopped(report)) {
        notes.push_back(
            "The recording does not reach the end of the program: what was held then may have been "
            "freed later.");
    }
    if (patterns.omitted != 0) {
        notes.push_back(format_count(patterns.omitted) +
                        " more lifetimes were not analyzed: savings at the peak are lower "
                        "bounds.");
    }
    return notes;
}

/// The sites that are one row: by device, place and kind of memory.
std::vector<std::uint32_t> groups_of(const model::Report& report, Resolver& resolver) {
    std::map<std::tuple<std::uint64_t, Place, std::string>, std::uint32_t> known;
    std::vector<std::uint32_t> groups;
    for (const model::Site& site : report.sites) {
        const auto next = static_cast<std::uint32_t>(known.size());
        groups.push_back(
            known.try_emplace({site.device, resolver.place(site.stack), site.kind}, next)
                .first->second);
    }
    return groups;
}

}  // namespace

Inefficiencies find_inefficiencies(const model::Report& report, Resolver& resolver,
                                   const FoundLog& log, const InefficiencyQuery& query,
                                   std::string* problem) {
    Inefficiencies result;
    if (log.empty()) {
        *problem = needs_log(log, "has sums, not moments");
        return result;
    }
    const std::optional<std::size_t> steps = choose_steps(report, query.step);
    if (!query.step.empty() && !steps) {
        *problem = "has no steps of the name " + query.step + "; memlab-report leaks --growth " +
                   "lists those that it has";
        return result;
    }
    const model::Steps* const chosen = steps ? &report.steps[*steps] : nullptr;
    InefficiencyQuery grouped = query;
    grouped.groups = groups_of(report, resolver);
    const CollectedPatterns patterns = collect_patterns(report, log.path, chosen, grouped.groups);
    if (chosen != nullptr) {
        result.steps = chosen->anchor ? "found: " + chosen->evidence
                                      : chosen->kind + " \"" + chosen->name + "\"";
    }
    const bool whole = patterns.stretch.empty() && has_ended(report);
    for (std::size_t i = 0; i < pattern_names().size(); ++i) {
        const auto pattern = static_cast<Pattern>(i);
        const bool seen = pattern == Pattern::unused_allocation ? all_work_recorded(report)
                          : pattern == Pattern::over_long_life  ? chosen != nullptr
                          : pattern == Pattern::leak            ? chosen != nullptr || whole
                                                                : true;
        if (seen && is_wanted(query, pattern)) {
            result.looked_for.push_back(pattern);
        }
    }
    result.notes = make_notes(report, patterns, chosen);
    if (!patterns.stretch.empty()) {
        result.notes.push_back(patterns.stretch);
    }
    result.devices = detect_patterns(report, resolver, grouped, patterns, chosen, log.path);
    return result;
}

}  // namespace memlab::report
