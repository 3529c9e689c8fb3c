// Text and JSON output of leaks.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/lacks.hpp"
#include "report/nn_module_parts.hpp"
#include "report/steps.hpp"
#include "report/summary/framework_findings.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/place_text.hpp"
#include "report/summary/summary.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"
#include "report/views/leaks.hpp"

namespace memlab::report {

namespace {

std::string rate(double bytes_per_step) {
    constexpr double max_rate = 9e18;
    const double positive = std::clamp(bytes_per_step, 0.0, max_rate);
    return format_bytes(static_cast<std::uint64_t>(std::llround(positive))) + "/step";
}

class LeaksText {
  public:
    explicit LeaksText(const LeakOptions& options) : options_(options), page_(options.style) {}

    std::string write(const model::Report& report, const Leaks& leaks) {
        if (options_.growth) {
            growth(leaks);
            return page_.take();
        }
        for (const DeviceLeaks& device : leaks.devices) {
            one(report, device);
        }
        if (leaks.devices.empty()) {
            page_.line("No GPU memory was allocated.");
        }
        page_.warnings(notes(report));
        return page_.take();
    }

  private:
    static std::vector<std::string> notes(const model::Report& report) {
        std::vector<std::string> notes;
        if (report.process.ended == "running" || report.process.ended == "cut off") {
            notes.push_back("The program " + end_text(report.process) +
                            ": this is what it held then, not necessarily a leak.");
        }
        for (const FrameworkFinding& finding : find_frameworks(report)) {
            notes.push_back(finding.text + (finding.command.empty() ? "" : " " + finding.command));
        }
        return notes;
    }

    void one(const model::Report& report, const DeviceLeaks& leaks) {
        page_.heading(device_title(*leaks.device, options_.style.ascii),
                      options_.filter.empty() ? "" : "only " + page_.clean(options_.filter));
        if (leaks.rows.empty()) {
            page_.line(std::string("Still allocated " + moment_text(report) + ": nothing") +
                       (leaks.suppressions.empty() ? "" : " else"));
        } else {
            page_.line("Still allocated " + moment_text(report) + ": " +
                       page_.bold(format_bytes(leaks.leaked.live_bytes)) + " in " +
                       format_plural(leaks.leaked.live_count, "allocation"));
            figures(0).head();
            rows(leaks.rows, leaks.leaked.live_bytes);
        }
        suppressed(leaks);
    }

    Table<SiteStats> figures(std::uint64_t whole) {
        Table<SiteStats> table(page_);
        table.bytes("bytes", &SiteStats::live_bytes)
            .share(&SiteStats::live_bytes, whole)
            .count("count", 9, &SiteStats::live_count);
        if (!options_.by_parts) {
            table.count("made", 10, &SiteStats::count);
        }
        table.last("where");
        return table;
    }

    void rows(const std::vector<SiteRow>& list, std::uint64_t whole) {
        const Table<SiteStats> table = figures(whole);
        SiteStats rest;
        for (std::size_t i = 0; i < list.size(); ++i) {
            if (i >= options_.top) {
                rest.add(list[i].stats);
                continue;
            }
            table.row(
                list[i].stats,
                describe_place(list[i].place, list[i].kind, list[i].api, table.last_width(),
                               {options_.style, options_.working_directory, options_.templates}));
            page_.note_below(table.last_column(),
                             model::format_labels(live_labels(list[i]), list[i].stats.live_bytes));
        }
        if (list.size() > options_.top) {
            table.row(rest,
                      page_.dim("[" + format_plural(list.size() - options_.top, "other") + "]"));
        }
    }

    void suppressed(const DeviceLeaks& leaks) {
        if (leaks.suppressions.empty()) {
            return;
        }
        page_.line("Suppressed: " + format_bytes(leaks.suppressed.live_bytes) + " in " +
                   format_plural(leaks.suppressed.live_count, "allocation"));
        using Suppressed = DeviceLeaks::Suppressed;
        Table<Suppressed> table(page_);
        table.bytes("", &Suppressed::bytes).count("", 8 + 9, &Suppressed::count).last("");
        for (const Suppressed& each : leaks.suppressions) {
            page_.paragraph(table.begin(each), page_.clean(each.by->name + ": " + each.by->reason));
            if (options_.show_suppressed) {
                rows(each.rows, each.bytes);
            }
        }
    }

    void growth(const Leaks& leaks) {
        if (leaks.steps.empty()) {
            page_.paragraph(
                "",
                "No steps are marked and none are found in the order of the allocations, so growth "
                "cannot be determined.");
            page_.paragraph(
                "", "docs/scopes.md says how a program marks them: NVTX ranges, or memlab.h.");
            return;
        }
        for (const GrowingSteps& each : leaks.steps) {
            steps(each);
        }
    }

    void steps(const GrowingSteps& growing) {
        const model::Steps& steps = *growing.steps;
        const bool grows = steps.verdict == "growing";
        page_.heading(page_.clean(describe_steps(steps)), page_.clean(steps.verdict));
        if (!grows) {
            page_.line("  " + range_after_steps(steps));
        } else if (growing.rows.empty() && growing.suppressed == 0) {
            page_.line("  by " + rate(steps.trend.bytes_per_step) +
                       (steps.by_site ? " in all; no single place grows steadily"
                                      : " in all; which places grow is not known: other kinds of "
                                        "steps began first"));
        }
        using Row = GrowingSteps::Row;
        Table<Row> table(page_);
        table.right("", 18, [](const Row& row) { return rate(row.bytes_per_step); })
            .last("", [&](const Row& row) {
                return describe_place(
                    row.place, row.kind, "", table.last_width(),
                    {options_.style, options_.working_directory, options_.templates});
            });
        if (const std::size_t more = table.rows(growing.rows, options_.top)) {
            page_.line(page_.dim("  [" + format_plural(more, "other") + "]"));
        }
        if (growing.suppressed != 0) {
            page_.line(page_.dim("  [" + format_count(growing.suppressed) + " suppressed]"));
        }
    }

    const LeakOptions& options_;
    Page page_;
};

ordered_json row_json(const SiteRow& row, const model::Report& report, Resolver& resolver) {
    ordered_json out = {{"place", place_json(row.place)}, {"kind", row.kind}, {"api", row.api}};
    out.update(site_stats_json(row.stats));
    out["stack"] = stack_json(resolver.frames(report.sites.at(row.sites.front()).stack));
    out["sites"] = recorded_sites(report, row.sites);
    if (!row.labels.empty()) {
        out["labels"] = labels_json(row.labels);
    }
    return out;
}

ordered_json device_json(const DeviceLeaks& leaks, const model::Report& report, Resolver& resolver,
                         const LeakOptions& options) {
    ordered_json places = ordered_json::array();
    SiteStats rest;
    for (const SiteRow& row : leaks.rows) {
        if (places.size() < options.top) {
            places.push_back(row_json(row, report, resolver));
        } else {
            rest.add(row.stats);
        }
    }
    ordered_json others = {{"places", leaks.rows.size() - places.size()}};
    others.update(site_stats_json(rest));
    ordered_json suppressions = ordered_json::array();
    for (const DeviceLeaks::Suppressed& each : leaks.suppressions) {
        ordered_json rows = ordered_json::array();
        for (const SiteRow& row : each.rows) {
            rows.push_back(row_json(row, report, resolver));
        }
        suppressions.push_back({{"name", each.by->name},
                                {"reason", each.by->reason},
                                {"built_in", each.by->built_in},
                                {"count", each.count},
                                {"bytes", each.bytes},
                                {"places", std::move(rows)}});
    }
    return {{"index", leaks.device->index},
            {"name", leaks.device->name},
            {"leaked", site_stats_json(leaks.leaked)},
            {"places", std::move(places)},
            {"others", std::move(others)},
            {"suppressed", site_stats_json(leaks.suppressed)},
            {"suppressions", std::move(suppressions)}};
}

ordered_json steps_json(const GrowingSteps& growing) {
    ordered_json rows = ordered_json::array();
    for (const GrowingSteps::Row& row : growing.rows) {
        rows.push_back({{"place", place_json(row.place)},
                        {"kind", row.kind},
                        {"bytes_per_step", row.bytes_per_step},
                        {"sites", row.sites}});
    }
    const model::Steps& steps = *growing.steps;
    return {{"kind", steps.kind},
            {"name", steps.name},
            {"evidence", text_or_null(steps.evidence)},
            {"steps", steps.steps},
            {"verdict", steps.verdict},
            {"bytes_per_step", steps.trend.bytes_per_step},
            {"growing", std::move(rows)},
            {"suppressed", growing.suppressed}};
}

}  // namespace

std::string render_leaks_text(const model::Report& report, const Leaks& leaks,
                              const LeakOptions& options) {
    return LeaksText(options).write(report, leaks);
}

std::string render_leaks_json(const std::string& file, const model::Report& report,
                              Resolver& resolver, const Leaks& leaks, const LeakOptions& options) {
    ordered_json out = {{"file", file},
                        {"ended", end_word(report.process)},
                        {"ended_text", end_text(report.process)},
                        {"filter", text_or_null(options.filter)},
                        {"devices", ordered_json::array()},
                        {"steps", ordered_json::array()}};
    for (const DeviceLeaks& device : leaks.devices) {
        out["devices"].push_back(device_json(device, report, resolver, options));
    }
    for (const GrowingSteps& steps : leaks.steps) {
        out["steps"].push_back(steps_json(steps));
    }
    return json_text(out);
}

}  // namespace memlab::report
