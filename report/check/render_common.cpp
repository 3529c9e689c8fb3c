// Shared by the renderings: the text of a limit, a verdict, a place.
#include <cstdio>

#include "report/check/render.hpp"
#include "report/device_label.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/units.hpp"

namespace memlab::report::check {

namespace {

/// Of a limit that is next to nothing no percentage says more than the difference.
std::string percent_above(Figure figure, Figure limit) {
    constexpr double most = 1000;
    const double percent =
        limit <= Figure() ? most : 100 * ((figure - limit).as_double() / limit.as_double());
    if (percent >= most) {
        return {};
    }
    char text[48];
    std::snprintf(text, sizeof text, percent < 0.05 ? " (<0.1%%)" : " (%.1f%%)", percent);
    return text;
}

/// By how much the limit is exceeded.
std::string excess_text(const Row& row) {
    const Unit unit = info(row.metric).unit;
    std::string text = figure_text(row.measured.figure - *row.allowed, unit);
    if (unit == Unit::share) {
        text.back() = ' ';  // percent of what is said to be percent
        text += "percentage points";
    }
    return text;
}

std::string relative_to(const std::string& folder, const std::string& file, bool* inside) {
    const std::string prefix = folder + "/";
    *inside = !folder.empty() && file.starts_with(prefix);
    // Debug information may have paths relative to the build folder: often the repository.
    if (!file.empty() && file.front() != '/') {
        *inside = !file.starts_with("../");
        return file.starts_with("./") ? file.substr(2) : file;
    }
    return *inside ? file.substr(prefix.size()) : file;
}

}  // namespace

std::string limit_text(const Row& row) {
    if (!row.limit) {
        return "-";
    }
    const Unit unit = info(row.metric).unit;
    std::string given = bound_text(row.limit->bound, unit);
    if (!row.limit->bound.relative() || !row.allowed) {
        return given;
    }
    return figure_text(*row.allowed, unit) + " (" + given + ")";
}

std::string verdict_text(const Row& row) {
    std::string text = name_of(row.verdict);
    if (row.verdict == Verdict::exceeded) {
        text += " by " + excess_text(row);
        if (info(row.metric).unit != Unit::share) {
            text += percent_above(row.measured.figure, *row.allowed);
        }
    }
    return text;
}

std::string sentence(const View& view, const Row& row) {
    const Unit unit = info(row.metric).unit;
    std::string text = view.processes.size() > 1 && !is_of_run(row.metric)
                           ? view.processes[row.process].name + ": "
                           : std::string();
    text += name_of(row.metric, row.subject);
    if (row.measured.device) {
        text += " on " +
                report::label_of(*view.processes[row.process].summary.report, *row.measured.device);
    }
    text += ": " + figure_text(row.measured.figure, unit);
    if (row.allowed) {
        const bool above = row.verdict == Verdict::exceeded;
        text += above ? ", " + excess_text(row) + " above" : ", within";
        text += " its limit of " + limit_text(row);
    }
    return text;
}

std::string responsible_text(const View& view, const Row& row, const Responsible& responsible) {
    const report::Place& place = responsible.place;
    std::string text = figure_text(responsible.figure, info(row.metric).unit) + "  " +
                       report::location_text(place, view.working_directory);
    if (!place.function.empty()) {
        text += "  " + place.function;
    }
    return text + report::through_note(place, responsible.kind) +
           report::kind_note(responsible.kind);
}

std::string conclusion(const Outcome& outcome) {
    const std::size_t exceeded = outcome.count(Verdict::exceeded);
    const std::size_t kept = outcome.count(Verdict::kept);
    const std::size_t judged = exceeded + kept + outcome.count(Verdict::unknown);
    if (exceeded != 0) {
        return std::to_string(exceeded) + " of " + std::to_string(judged) + " limits exceeded";
    }
    if (!outcome.problems.empty()) {
        return "not everything could be checked";
    }
    if (kept == 0) {
        const std::size_t passed = outcome.count(Verdict::no_baseline);
        return passed != 0 ? "nothing was judged: there is no baseline yet" : "nothing was judged";
    }
    return report::format_plural(kept, "limit") + (kept == 1 ? " is kept" : " are kept");
}

std::optional<SourceLine> source_line(const View& view, const Row& row) {
    std::optional<SourceLine> outside;
    for (const Responsible& responsible : row.measured.responsible) {
        const report::Place& place = responsible.place;
        if (place.file.empty() || place.line <= 0) {
            continue;
        }
        SourceLine line;
        line.file = relative_to(view.working_directory, place.file, &line.relative);
        line.line = place.line;
        if (line.relative) {
            return line;
        }
        outside = outside ? outside : line;
    }
    return outside;
}

}  // namespace memlab::report::check
