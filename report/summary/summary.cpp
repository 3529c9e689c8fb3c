#include "report/summary/summary.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/text/units.hpp"
#include "trace/record.hpp"

namespace memlab::report {

namespace {

/// Sums saturate, since the figures of a file are not trusted.
HoldersSummary summarize_holders(const model::Holders& holders, const model::Report& report,
                                 Resolver& resolver) {
    HoldersSummary summary;
    summary.time_ns = holders.time_ns;
    summary.count = holders.count;
    summary.bytes = holders.bytes;
    summary.unnamed_count = holders.other_count;
    summary.unnamed_bytes = holders.other_bytes;
    std::vector<model::Holders::Share> shares = holders.sites;
    std::stable_sort(shares.begin(), shares.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    std::map<std::pair<Place, std::string>, std::size_t> known;
    for (const model::Holders::Share& share : shares) {
        const model::Site& site = report.sites.at(share.site);
        const Place& place = resolver.place(site.stack);
        const auto [entry, is_new] = known.try_emplace({place, site.kind}, summary.places.size());
        if (is_new) {
            summary.places.push_back({place, site.kind, site.api, 0, 0, {}, {}, {}});
        }
        PlaceShare& out = summary.places[entry->second];
        out.count = model::saturating_add(out.count, share.count);
        out.bytes = model::saturating_add(out.bytes, share.bytes);
        out.sites.push_back(share.site);
        if (std::find(out.stacks.begin(), out.stacks.end(), site.stack) == out.stacks.end()) {
            out.stacks.push_back(site.stack);
        }
        for (const model::MemoryLabel& label : share.labels) {
            model::add_label(label, out.labels);
        }
    }
    for (PlaceShare& place : summary.places) {
        model::sort_labels(place.labels);
    }
    std::stable_sort(summary.places.begin(), summary.places.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return summary;
}

std::string joined(const std::vector<std::string>& sentences) {
    std::string text;
    for (const std::string& sentence : sentences) {
        text += (text.empty() ? "" : " ") + sentence;
    }
    return text;
}

std::vector<std::string> collect_warnings(const model::Report& report,
                                          const std::vector<Lack>& lacks,
                                          const Resolver& resolver) {
    std::vector<std::string> warnings = sentences(lacks);
    for (const model::Missed& missed : report.missed) {
        if (missed.figures == "complete") {
            warnings.push_back(missed_text(missed));
        }
    }
    const model::Coverage& coverage = report.coverage;
    const auto asked_for = [&](const char* name) {
        const auto option = report.options.find(name);
        return option != report.options.end() && option->second != "off" && option->second != "0";
    };
    if (asked_for("MEMLAB_AUDIT") && !coverage.audited) {
        warnings.push_back("Not audited: " + (coverage.because.empty()
                                                  ? std::string("the recording does not say why.")
                                                  : coverage.because));
    } else if (asked_for("MEMLAB_KERNELS") && !coverage.audited && !coverage.because.empty() &&
               coverage.because != trace::Coverage::not_wanted) {
        warnings.push_back("MEMLAB_KERNELS=on, but kernels and copies are missing: " +
                           coverage.because);
    }
    if (std::string note = resolver.missing_names(); !note.empty()) {
        warnings.push_back(std::move(note));
    }
    return warnings;
}

std::vector<StepsSummary> summarize_steps(const model::Report& report, Resolver& resolver) {
    std::vector<StepsSummary> all;
    for (const model::Steps& steps : report.steps) {
        if (steps.verdict == "too few steps") {
            continue;
        }
        StepsSummary summary{&steps, {}};
        for (const model::Steps::Growing& growing : steps.growing) {
            const Place& place = resolver.place(report.sites.at(growing.site).stack);
            const auto same = std::find_if(summary.growing.begin(), summary.growing.end(),
                                           [&](const auto& each) { return each.place == place; });
            if (same == summary.growing.end()) {
                summary.growing.push_back({place, growing.trend.bytes_per_step});
            } else {
                same->bytes_per_step += growing.trend.bytes_per_step;
            }
        }
        std::stable_sort(
            summary.growing.begin(), summary.growing.end(),
            [](const auto& a, const auto& b) { return a.bytes_per_step > b.bytes_per_step; });
        all.push_back(std::move(summary));
    }
    std::stable_sort(all.begin(), all.end(), [](const StepsSummary& a, const StepsSummary& b) {
        const bool a_grows = a.steps->verdict == "growing";
        const bool b_grows = b.steps->verdict == "growing";
        return a_grows != b_grows ? a_grows : a.steps->steps > b.steps->steps;
    });
    return all;
}

/// Of the place that holds most.
std::optional<SkipProposal> propose_for(const HoldersSummary& holders, const model::Report& report,
                                        Resolver& resolver) {
    std::vector<std::pair<std::size_t, std::uint64_t>> stacks;
    if (!holders.places.empty()) {
        for (const std::size_t i : holders.places.front().sites) {
            stacks.emplace_back(report.sites[i].stack, report.sites[i].at_peak_bytes);
        }
    }
    return propose_skip(resolver, stacks, holders.bytes);
}

}  // namespace

model::Holders still_allocated(const model::Device& device, const model::Report& report) {
    model::Holders all = device.live;
    for (std::size_t i = 0; i < report.sites.size(); ++i) {
        const model::Site& site = report.sites[i];
        if (site.device == device.index && site.live_count != 0 &&
            !model::is_in_curves(site.kind)) {
            all.sites.push_back({i, site.live_count, site.live_bytes, {}});
            all.count = model::saturating_add(all.count, site.live_count);
            all.bytes = model::saturating_add(all.bytes, site.live_bytes);
        }
    }
    return all;
}

std::string unfinished_text(const model::Report& report) {
    const model::Process& process = report.process;
    if (recording_stopped(report)) {
        return "was recorded in part: its recording " + stop_text(report);
    }
    if (!process.signal.empty()) {
        return "was " + end_text(process);
    }
    return process.ended == "cut off" || process.ended == "running" ? end_text(process)
                                                                    : std::string();
}

std::string end_text(const model::Process& process) {
    if (process.recording) {
        return "still running after " + format_duration(process.duration_ns);
    }
    // If the end is unknown, the duration is the time of the last event.
    const bool known = process.ended != "cut off" || process.recorded_ns != 0;
    const std::string after =
        (known ? " after " : " after at least ") + format_duration(process.duration_ns);
    if (!process.signal.empty()) {
        return "killed by " + process.signal + after;
    }
    if (process.ended == "cut off") {
        if (process.exit_code) {
            // No recorded end and no signal: the process called _exit or exec.
            return "ended by _exit or exec with code " + std::to_string(*process.exit_code) + after;
        }
        return "was cut off" + after;
    }
    if (process.exit_code && *process.exit_code != 0) {
        return "exited with code " + std::to_string(*process.exit_code) + after;
    }
    if (process.ended == "running") {
        return "was running (a snapshot)" + after;
    }
    if (process.ended == "quick_exit") {
        return "ended by quick_exit" + after;
    }
    return "ended normally" + after;
}

bool succeeded(const model::Process& process) {
    return (process.ended != "cut off" || process.recording) && process.signal.empty() &&
           process.exit_code.value_or(0) == 0;
}

Summary summarize(const std::string& file, const model::Report& report, Resolver& resolver) {
    Summary summary;
    summary.file = file;
    summary.report = &report;
    summary.ended = end_text(report.process);
    summary.succeeded = succeeded(report.process);
    for (const model::Device& device : report.devices) {
        if (device.used()) {
            summary.devices.push_back(
                {&device, summarize_holders(device.at_peak, report, resolver),
                 summarize_holders(device.live, report, resolver),
                 summarize_holders(still_allocated(device, report), report, resolver),
                 categories_at_peak(report, device, resolver),
                 doubt_about_categories(report, device, resolver)});
            summary.devices.back().nn_modules = nn_modules_at_peak(report, device);
            summary.devices.back().reserve = find_unused_reserve(report, device);
            summary.devices.back().proposal =
                propose_for(summary.devices.back().at_peak, report, resolver);
            if (device.kind_curves) {
                for (const auto& [kind, curve] : *device.kind_curves) {
                    summary.devices.back().kinds.push_back(
                        {kind, &curve, summarize_holders(curve.at_peak, report, resolver)});
                }
            }
        }
    }
    for (const model::Oom& oom : report.ooms) {
        summary.ooms.push_back({&oom, resolver.place(oom.stack),
                                summarize_holders(oom.holders, report, resolver),
                                joined(oom.explanation)});
    }
    for (const model::Coverage::Bypassed& bypassed : report.coverage.bypassed) {
        summary.bypasses.push_back({&bypassed, resolver.place(bypassed.stack)});
    }
    std::stable_sort(
        summary.bypasses.begin(), summary.bypasses.end(),
        [](const auto& a, const auto& b) { return a.bypassed->bytes > b.bypassed->bytes; });
    summary.steps = summarize_steps(report, resolver);
    summary.frameworks = find_frameworks(report);
    summary.lacks = find_lacks(report);
    summary.warnings = collect_warnings(report, summary.lacks, resolver);
    return summary;
}

std::string scope_path(const model::Report& report, std::size_t scope) {
    std::string path = report.scopes.at(scope).name;
    for (auto up = report.scopes.at(scope).parent; up; up = report.scopes.at(*up).parent) {
        path.insert(0, report.scopes.at(*up).name + "/");
    }
    return path;
}

}  // namespace memlab::report
