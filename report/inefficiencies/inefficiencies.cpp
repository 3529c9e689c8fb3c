#include "report/inefficiencies/inefficiencies.hpp"

#include <optional>

#include "report/inefficiencies/collect_patterns.hpp"
#include "report/steps.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

std::vector<std::string> make_notes(const model::Report& report, const CollectedPatterns& patterns,
                                    bool has_steps) {
    std::vector<std::string> notes;
    if (!has_steps) {
        notes.push_back(
            "The program marks no steps and none were found, so memory that outlives a step or "
            "grows with steps is not found: docs/scopes.md shows how to mark them.");
    }
    if (report.process.ended == "running" || report.process.ended == "cut off") {
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

}  // namespace

Inefficiencies find_inefficiencies(const model::Report& report, Resolver& resolver,
                                   const std::string& log, const InefficiencyQuery& query,
                                   std::string* problem) {
    Inefficiencies result;
    if (log.empty()) {
        *problem =
            "has sums, not moments; give its event log (*.memlog), or keep it beside the report";
        return result;
    }
    const std::optional<std::size_t> steps = choose_steps(report, query.step);
    if (!query.step.empty() && !steps) {
        *problem = "has no steps of the name " + query.step + "; memlab-report leaks --growth " +
                   "lists those that it has";
        return result;
    }
    const model::Steps* const chosen = steps ? &report.steps[*steps] : nullptr;
    const CollectedPatterns patterns = collect_patterns(report, log, chosen);
    if (chosen != nullptr) {
        result.steps = chosen->anchor ? "found: " + chosen->evidence
                                      : chosen->kind + " \"" + chosen->name + "\"";
    }
    result.notes = make_notes(report, patterns, chosen != nullptr);
    if (!patterns.stretch.empty()) {
        result.notes.push_back(patterns.stretch);
    }
    result.devices = detect_patterns(report, resolver, query, patterns, chosen, log);
    return result;
}

}  // namespace memlab::report
