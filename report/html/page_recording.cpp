// Reads all that the page shows of one recording.
#include <future>
#include <utility>

#include "report/html/page_recording.hpp"
#include "report/inefficiencies/render.hpp"
#include "report/inefficiencies/reserve_findings.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/found_steps.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/category.hpp"
#include "report/text/names.hpp"
#include "report/text/signal_cleanup.hpp"
#include "report/text/units.hpp"
#include "report/views/leaks.hpp"
#include "report/views/ledger_text.hpp"
#include "report/whatif/oom_advice.hpp"

namespace memlab::report {

namespace {

/// Places in each list of the documents.
constexpr std::size_t documents_top = 50;

SiteCategories categories_of(const model::Report& report, Resolver& resolver) {
    SiteCategories categories(report.sites.size());
    for (const model::Device& device : report.devices) {
        if (!device.used() || !has_categories(report, device)) {
            continue;
        }
        for (std::size_t i = 0; i < report.sites.size(); ++i) {
            if (report.sites[i].device == device.index) {
                categories[i] = static_cast<std::size_t>(categorize(report.sites[i], resolver));
            }
        }
    }
    return categories;
}

}  // namespace

std::vector<std::string> history_notes(const PageRecording& recording) {
    const History& history = recording.history;
    std::vector<std::string> notes;
    if (!recording.from_log) {
        notes.emplace_back(
            "Made from a report alone: who held memory is known at the peak of each GPU and at the "
            "end only. Its event log (*.memlog) has all moments.");
    }
    if (!history.stretch.empty()) {
        notes.push_back(history.stretch);
    }
    const auto left_out = [&notes](std::size_t count, const char* what, const char* why) {
        if (count != 0) {
            notes.push_back(format_plural(count, what) + why);
        }
    };
    left_out(history.scopes_left_out, "scope", " left out, the shortest ones.");
    left_out(history.events_left_out, "mark", " or failures left out, the last ones.");
    left_out(history.maps_left_out, "memory map", " left out: too many blocks to look at.");
    if (history.nn_modules.depth != PageNnModules::every_depth) {
        notes.push_back("nn.Modules are told apart by the first " +
                        format_plural(history.nn_modules.depth, "component") +
                        " of their names: all of them did not fit.");
    }
    if (history.merged_below != 0) {
        notes.push_back("In some memory maps, neighbouring blocks of less than " +
                        format_bytes(history.merged_below) + " are drawn as one.");
    }
    for (const History::Event& event : history.events) {
        if (recording.from_log && event.what == History::What::peak && !event.moment) {
            notes.push_back("The event log lacks the peak of device " +
                            std::to_string(event.device) +
                            ": who held it is in the summary alone.");
        }
    }
    return notes;
}

void leave_out_arguments(model::Process& process) {
    const std::string name =
        base_name(process.arguments.empty() ? process.executable : process.arguments.front());
    process.arguments.assign(1, name);
}

PageRecording read_recording(const std::string& file, model::Report given, Symbolizer* symbolizer,
                             const PageOptions& options, const std::vector<Lack>& run_lacks) {
    PageRecording recording;
    recording.file = file;
    const std::string log = find_event_log(file, given);
    recording.from_log = !log.empty();
    add_found_steps(given, log);
    if (!options.sources) {
        leave_out_arguments(given.process);
    }
    recording.report = std::make_unique<const model::Report>(std::move(given));
    const model::Report& report = *recording.report;
    recording.resolver = std::make_unique<Resolver>(report, symbolizer, options.skips);
    Resolver& resolver = *recording.resolver;
    recording.categories = categories_of(report, resolver);

    ViewOptions view;
    view.top = documents_top;
    const auto examine = [&] {
        InefficiencyQuery query;
        query.taken.assign(report.sites.size(), true);
        query.suppressions = options.suppressions;
        query.pool_settings = options.pool_settings;
        std::string problem;
        const Inefficiencies found = find_inefficiencies(report, resolver, log, query, &problem);
        return problem.empty() ? inefficiencies_json(report, resolver, found, view) : std::string();
    };
    // They read the log for themselves, while this thread, which shows the progress, reads it for
    // the history and needs no names.
    std::future<std::string> inefficiencies;
    if (!log.empty()) {
        const SignalBlocker held(SignalBlocker::Which::all);
        inefficiencies = std::async(std::launch::async | std::launch::deferred, examine);
    }
    recording.history = log.empty()
                            ? history_of_report(report, recording.categories, options.limits)
                            : read_history(report, log, recording.categories, options.limits);
    recording.lacks = find_lacks(report);
    recording.lacks.insert(recording.lacks.end(), run_lacks.begin(), run_lacks.end());
    const auto add = [&recording](const char* name, std::string json) {
        if (!json.empty()) {
            recording.documents.emplace_back(name, with_lacks(std::move(json), recording.lacks));
        }
    };
    add("inefficiencies", log.empty() ? std::string() : inefficiencies.get());
    Summary summary = summarize(file, report, resolver);
    whatif::advise_on_ooms(log, options.pool_settings, summary);
    try_settings_on_reserve(log, options.pool_settings, summary);
    recording.notes = summary.warnings;
    add("summary", render_json(summary, resolver, documents_top, SummaryLists::no_names));
    LeakOptions leak_options{view};
    const Leaks leaks = find_leaks(report, resolver, std::vector<bool>(report.sites.size(), true),
                                   *options.suppressions, leak_options);
    recording.suppressed.resize(report.sites.size());
    for (const DeviceLeaks& device : leaks.devices) {
        for (const DeviceLeaks::Suppressed& kept : device.suppressions) {
            for (const SiteRow& row : kept.rows) {
                for (const std::size_t site : row.sites) {
                    recording.suppressed[site] = true;
                }
            }
        }
    }
    add("leaks", render_leaks_json(file, report, resolver, leaks, leak_options));
    add("ledger", render_ledger_json(file, report, resolver, view));
    add("oom", render_ooms_json(summary, resolver, documents_top));
    return recording;
}

}  // namespace memlab::report
