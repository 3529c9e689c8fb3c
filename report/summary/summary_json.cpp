// JSON output of the summary:
// {"format": "memlab-summary", "version": 1, "reports": [...], "errors": [{"file", "error"}]}.
// One object per report:
//   file, process {name, pid, executable, arguments, host, start_wall_ns, duration_ns, ended,
//     ended_text, signal, exit_code (null when not known), started_late, ranks}, memlab_version,
//   devices [index, allocator (null: a GPU), gpu, name, uuid, total_bytes, limit_bytes,
//   driver_version,
//     curves {requested, allocated, active, reserved, device_used: {peak_bytes, peak_time_ns,
//       at_end_bytes} or null},
//     reserve (null: no multiple of what was allocated) {reserved_bytes, allocated_bytes, setting,
//       with_setting_bytes (both null: none that reserves less is known), text},
//     waterfall (null if there is no memory) {time_ns, within_ns, device_used_bytes,
//       remainder_bytes (both null if there is no sample), reserved_bytes, cached_bytes,
//       active_bytes, pending_bytes, allocated_bytes, rounding_bytes, requested_bytes,
//       outside_pool_bytes {kind: bytes}, remainder (of the ledger's sampled peak, if one was kept)
//       {kind: bytes}},
//     fragmentation {at_peak, external, internal, largest_free_bytes, total_free_bytes},
//     kinds {name: {count, bytes, peak_bytes, live_count, live_bytes}},
//     categories {name: {count, bytes}} (of PyTorch's memory at the allocated peak, if it has any),
//     nn_modules [name, count, bytes] (what each held of it, if any did),
//     kind_curves {name: {peak_bytes, peak_time_ns, at_end_bytes, at_peak {count, bytes, places,
//       other}}} (of kinds that the curves do not include),
//     at_peak {time_ns, count, bytes, places, other}, live (without time_ns), still_allocated (as
//     live, of every kind of memory)],
//   ooms [time_ns, device, thread, thread_name, api, kind, requested_bytes, device_free_bytes,
//     device_total_bytes, largest_free_block_bytes, error, refused_by, others, place,
//     explanation, holders], oom_count,
//   frameworks [name, key, switched_off, peak_bytes, text, command (null if there is none)]: caches
//     on top of memlab's pool, and those that were switched off,
//   marks [type, name, time_ns, devices], mark_count, scopes [path, kind, ...], labels [name, ...],
//   steps [kind, name, evidence (null: marked), steps, verdict, growing [bytes_per_step, place]],
//   warnings [text].
// A place in a list: bytes, count, share (of the list's bytes), kind, api, sites, place, stacks.
// labels (of an OOM's places, if there are any): name, count, bytes.
// place: function, file, line, module, address, through, problem (null if unknown).
// stacks: lists of frames {function (with parameters), file, line, module, address, inlined,
// python, problem}, the call into CUDA first; the first 8 of a place.
// Members keep their names and meaning; new ones may be added.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/summary/json_object.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/ledger.hpp"
#include "report/summary/summary.hpp"
#include "report/summary/waterfall.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t max_stacks = 8;

json ratio_json(const std::optional<double>& ratio) {
    return ratio ? json(*ratio) : json(nullptr);
}

json memory_labels_json(const std::vector<model::MemoryLabel>& labels) {
    json out = json::array();
    for (const model::MemoryLabel& label : labels) {
        out.push_back({{"name", label.name}, {"count", label.count}, {"bytes", label.bytes}});
        add_detail(label.detail, out.back());
    }
    return out;
}

json holders_json(const HoldersSummary& holders, Resolver& resolver, std::size_t top,
                  bool with_time) {
    json out;
    if (with_time) {
        out["time_ns"] = holders.time_ns;
    }
    out["count"] = holders.count;
    out["bytes"] = holders.bytes;
    out["places"] = json::array();
    std::uint64_t other_count = holders.unnamed_count;
    std::uint64_t other_bytes = holders.unnamed_bytes;
    for (const PlaceShare& share : holders.places) {
        if (out["places"].size() >= top) {
            other_count += share.count;
            other_bytes += share.bytes;
            continue;
        }
        json stacks = json::array();
        for (const std::size_t stack : share.stacks) {
            if (stacks.size() < max_stacks && stack != 0) {
                stacks.push_back(stack_json(resolver.frames(stack)));
            }
        }
        const double part = holders.bytes == 0 ? 0
                                               : static_cast<double>(share.bytes) /
                                                     static_cast<double>(holders.bytes);
        json row = {{"bytes", share.bytes},
                    {"count", share.count},
                    {"share", part},
                    {"kind", share.kind},
                    {"api", share.api},
                    {"sites", share.sites},
                    {"place", place_json(share.place)},
                    {"stacks", std::move(stacks)}};
        if (!share.labels.empty()) {
            row["labels"] = memory_labels_json(share.labels);
        }
        out["places"].push_back(std::move(row));
    }
    out["other"] = {{"count", other_count}, {"bytes", other_bytes}};
    return out;
}

json process_json(const Summary& summary) {
    const model::Process& process = summary.report->process;
    return {{"name", base_name(process.executable)},
            {"pid", process.pid},
            {"executable", process.executable},
            {"arguments", process.arguments},
            {"host", process.host},
            {"start_wall_ns", process.start_wall_ns},
            {"duration_ns", process.duration_ns},
            {"ended", end_word(process)},
            {"ended_text", summary.ended},
            {"signal", text_or_null(process.signal)},
            {"exit_code", process.exit_code ? json(*process.exit_code) : json(nullptr)},
            {"started_late", process.started_late},
            {"ranks", process.ranks}};
}

json values_json(const model::CurveValues& values) {
    return {{"requested_bytes", values.requested},
            {"allocated_bytes", values.allocated},
            {"active_bytes", values.active},
            {"reserved_bytes", values.reserved}};
}

json kernels_json(const model::KernelsAtPeak& moment, std::size_t top) {
    json kernels = json::array();
    std::uint64_t other_count = moment.other_count;
    std::uint64_t other_ns = moment.other_ns;
    for (const model::KernelsAtPeak::Kernel& kernel : moment.kernels) {
        if (kernels.size() >= top) {
            other_count += kernel.count;
            other_ns += kernel.busy_ns;
            continue;
        }
        kernels.push_back({{"name", kernel.name},
                           {"function", demangle(kernel.name.c_str())},
                           {"count", kernel.count},
                           {"busy_ns", kernel.busy_ns}});
    }
    return {{"from_ns", moment.from_ns},
            {"to_ns", moment.to_ns},
            {"kernels", std::move(kernels)},
            {"other", {{"count", other_count}, {"busy_ns", other_ns}}}};
}

json remainder_json(const LedgerPage& ledger) {
    json out = json::object();
    for (const LedgerGroup& group : ledger.groups) {
        if (group.kind != "allocations" && group.kind != "driver_pools") {
            out[group.kind] = group.bytes;
        }
    }
    out["rest"] = ledger.rest;
    return out;
}

json waterfall_json(const model::Report& report, const model::Device& device, Resolver& resolver) {
    const std::optional<Waterfall> fall = make_waterfall(report, device);
    if (!fall) {
        return nullptr;
    }
    json used = nullptr;
    json remainder = nullptr;
    if (fall->device_used) {
        used = *fall->device_used;
        remainder = *fall->device_used - fall->reserved;
    }
    json out = {{"time_ns", fall->time_ns},
                {"within_ns", fall->within_ns},
                {"device_used_bytes", std::move(used)},
                {"remainder_bytes", std::move(remainder)},
                {"reserved_bytes", fall->reserved},
                {"cached_bytes", fall->reserved - fall->active},
                {"active_bytes", fall->active},
                {"pending_bytes", fall->active - fall->allocated},
                {"allocated_bytes", fall->allocated},
                {"rounding_bytes", fall->allocated - fall->requested},
                {"requested_bytes", fall->requested},
                {"outside_pool_bytes", fall->outside_pool}};
    if (const auto ledger = ledger_page(device, resolver, LedgerAt::peak)) {
        out["remainder"] = remainder_json(*ledger);
    }
    return out;
}

json device_json(const model::Report& report, const DeviceSummary& summary, Resolver& resolver,
                 std::size_t top) {
    const model::Device& device = *summary.device;
    static constexpr std::array<const char*, model::curve_count> names = {
        "requested", "allocated", "active", "reserved", "device_used"};
    json curves;
    for (std::size_t c = 0; c < model::curve_count; ++c) {
        const auto& curve = device.curves.at(c);
        curves[names.at(c)] = !curve ? json(nullptr)
                                     : json({{"peak_bytes", curve->peak_bytes},
                                             {"peak_time_ns", curve->peak_time_ns},
                                             {"at_end_bytes", curve->at_end_bytes}});
    }
    json kinds = json::object();
    for (const auto& [kind, totals] : device.kinds) {
        kinds[kind] = {{"count", totals.count},
                       {"bytes", totals.bytes},
                       {"peak_bytes", totals.peak_bytes},
                       {"live_count", totals.live_count},
                       {"live_bytes", totals.live_bytes}};
    }
    json out = {{"index", device.index},
                {"allocator", device.is_gpu() ? json(nullptr) : json(device.allocator)},
                {"gpu", device.gpu()},
                {"name", device.name},
                {"uuid", device.uuid},
                {"total_bytes", device.total_bytes},
                {"limit_bytes", device.limit_bytes ? json(*device.limit_bytes) : json(nullptr)},
                {"driver_version", device.driver_version},
                {"curves", std::move(curves)},
                {"reserve", summary.reserve ? JsonObject::of(*summary.reserve) : json()},
                {"waterfall", waterfall_json(report, device, resolver)},
                {"fragmentation",
                 {{"at_peak", ratio_json(device.fragmentation.at_peak)},
                  {"external", ratio_json(device.fragmentation.external)},
                  {"internal", ratio_json(device.fragmentation.internal)},
                  {"largest_free_bytes", device.fragmentation.largest_free_bytes},
                  {"total_free_bytes", device.fragmentation.total_free_bytes}}},
                {"kinds", std::move(kinds)},
                {"at_peak", holders_json(summary.at_peak, resolver, top, true)},
                {"live", holders_json(summary.live, resolver, top, false)},
                {"still_allocated", holders_json(summary.still_allocated, resolver, top, false)}};
    for (const KindSummary& kind : summary.kinds) {
        const model::CurveSummary& curve = kind.curve->curve;
        out["kind_curves"][kind.kind] = {
            {"peak_bytes", curve.peak_bytes},
            {"peak_time_ns", curve.peak_time_ns},
            {"at_end_bytes", curve.at_end_bytes},
            {"at_peak", holders_json(kind.at_peak, resolver, top, false)}};
    }
    for (std::size_t i = 0; i < category_count; ++i) {
        const CategoryShare& share = summary.categories[i];
        if (share.count != 0) {
            out["categories"][category_name(static_cast<Category>(i))] = {{"count", share.count},
                                                                          {"bytes", share.bytes}};
        }
    }
    for (std::size_t i = 0; i < std::min(top, summary.nn_modules.size()); ++i) {
        const NnModuleAtPeak& each = summary.nn_modules[i];
        out["nn_modules"].push_back(
            {{"name", each.name}, {"count", each.count}, {"bytes", each.bytes}});
    }
    if (device.work) {
        for (const auto& [kind, totals] : *device.work) {
            out["work"][kind] = {
                {"count", totals.count}, {"busy_ns", totals.busy_ns}, {"bytes", totals.bytes}};
        }
    }
    if (device.kernels_at_peak) {
        out["kernels_at_peak"] = kernels_json(*device.kernels_at_peak, top);
    }
    return out;
}

json coverage_json(const Summary& summary) {
    const model::Coverage& coverage = summary.report->coverage;
    json bypassed = json::array();
    for (const BypassSummary& bypass : summary.bypasses) {
        const model::Coverage::Bypassed& what = *bypass.bypassed;
        bypassed.push_back({{"device", what.device},
                            {"kind", what.kind},
                            {"api", text_or_null(what.api)},
                            {"count", what.count},
                            {"bytes", what.bytes},
                            {"first_time_ns", what.first_time_ns},
                            {"place", place_json(bypass.place)}});
    }
    return {{"audited", coverage.audited},
            {"because", coverage.because},
            {"cupti", text_or_null(coverage.cupti)},
            {"driver_count", coverage.driver_count},
            {"driver_bytes", coverage.driver_bytes},
            {"lost_records", coverage.lost_records},
            {"bypassed_count", coverage.bypassed_count},
            {"bypassed_bytes", coverage.bypassed_bytes},
            {"bypassed", std::move(bypassed)}};
}

json oom_json(const model::Report& report, const OomSummary& summary, Resolver& resolver,
              std::size_t top) {
    const model::Oom& oom = *summary.oom;
    const std::string* const thread_name = report.thread_name(oom.thread);
    return {{"time_ns", oom.time_ns},
            {"device", oom.device},
            {"thread", oom.thread},
            {"thread_name", thread_name == nullptr ? json() : json(*thread_name)},
            {"api", oom.api},
            {"kind", oom.kind},
            {"requested_bytes", oom.requested_bytes},
            {"device_free_bytes", oom.device_free_bytes},
            {"device_total_bytes", oom.device_total_bytes},
            {"largest_free_block_bytes", oom.largest_free_block_bytes},
            {"error", oom.error},
            {"refused_by", text_or_null(oom.refused_by)},
            {"others", oom.others ? json{{"bytes", oom.others->bytes},
                                         {"processes", oom.others->processes},
                                         {"time_ns", oom.others->time_ns}}
                                  : json()},
            {"current", values_json(oom.current)},
            {"place", place_json(summary.place)},
            {"explanation", summary.explanation},
            {"holders", holders_json(summary.holders, resolver, top, false)}};
}

json scope_json(const model::Report& report, std::size_t index, Resolver& resolver) {
    const model::Scope& scope = report.scopes.at(index);
    json places = json::array();
    for (const model::Holders::Share& share : scope.escaped.sites) {
        places.push_back(
            {{"bytes", share.bytes},
             {"count", share.count},
             {"site", share.site},
             {"place", place_json(resolver.place(report.sites.at(share.site).stack))}});
    }
    return {{"path", scope_path(report, index)},
            {"kind", scope.kind},
            {"entries", scope.entries},
            {"duration_ns", scope.duration_ns},
            {"allocated_count", scope.allocated_count},
            {"allocated_bytes", scope.allocated_bytes},
            {"freed_count", scope.freed_count},
            {"freed_bytes", scope.freed_bytes},
            {"peak_bytes", scope.peak_bytes},
            {"peak_growth_bytes", scope.peak_growth_bytes},
            {"escaped",
             {{"count", scope.escaped.count},
              {"bytes", scope.escaped.bytes},
              {"most_bytes", scope.max_escaped_bytes},
              {"places", std::move(places)},
              {"other",
               {{"count", scope.escaped.other_count}, {"bytes", scope.escaped.other_bytes}}}}}};
}

json steps_json(const StepsSummary& summary) {
    const model::Steps& steps = *summary.steps;
    json growing = json::array();
    for (const StepsSummary::Growing& each : summary.growing) {
        growing.push_back(
            {{"bytes_per_step", each.bytes_per_step}, {"place", place_json(each.place)}});
    }
    return {{"kind", steps.kind},
            {"name", steps.name},
            {"evidence", text_or_null(steps.evidence)},
            {"steps", steps.steps},
            {"verdict", steps.verdict},
            {"bytes_per_step", steps.trend.bytes_per_step},
            {"min_bytes", steps.trend.min_bytes},
            {"max_bytes", steps.trend.max_bytes},
            {"growing", std::move(growing)}};
}

}  // namespace

std::string render_ooms_json(const Summary& summary, Resolver& resolver, std::size_t top) {
    json out;
    out["file"] = summary.file;
    out["oom_count"] = summary.report->oom_count;
    out["ooms"] = json::array();
    for (const OomSummary& oom : summary.ooms) {
        json& shown = out["ooms"].emplace_back(oom_json(*summary.report, oom, resolver, top));
        shown["stack"] = stack_json(resolver.frames(oom.oom->stack));
        if (oom.advice) {
            shown["advice"] = *oom.advice;
        }
    }
    return json_text(out);
}

static json marks_json(const model::Report& report) {
    json marks = json::array();
    for (const model::Mark& mark : report.marks) {
        json devices = json::array();
        for (const model::Mark::OnDevice& on : mark.devices) {
            json values = values_json(on.values);
            values["device"] = on.device;
            values["allocated_peak_bytes"] = on.allocated_peak_bytes;
            values["reserved_peak_bytes"] = on.reserved_peak_bytes;
            devices.push_back(std::move(values));
        }
        marks.push_back({{"type", mark.type},
                         {"name", mark.name},
                         {"time_ns", mark.time_ns},
                         {"devices", std::move(devices)}});
    }
    return marks;
}

static json labels_json(const model::Report& report) {
    json labels = json::array();
    for (const model::Label& label : report.labels) {
        labels.push_back({{"name", label.name},
                          {"count", label.count},
                          {"live_count", label.live_count},
                          {"live_bytes", label.live_bytes},
                          {"peak_bytes", label.peak_bytes}});
        add_detail(label.detail, labels.back());
    }
    return labels;
}

std::string render_json(const Summary& summary, Resolver& resolver, std::size_t top,
                        SummaryLists lists) {
    const model::Report& report = *summary.report;
    json out;
    out["file"] = summary.file;
    out["memlab_version"] = report.memlab_version;
    out["process"] = process_json(summary);
    out["devices"] = json::array();
    for (const DeviceSummary& device : summary.devices) {
        out["devices"].push_back(device_json(report, device, resolver, top));
    }
    out["ooms"] = json::array();
    for (const OomSummary& oom : summary.ooms) {
        out["ooms"].push_back(oom_json(*summary.report, oom, resolver, top));
    }
    out["oom_count"] = report.oom_count;
    out["frameworks"] = json::array();
    for (const FrameworkFinding& finding : summary.frameworks) {
        out["frameworks"].push_back({{"name", finding.cache->name},
                                     {"key", finding.cache->key},
                                     {"switched_off", finding.switched_off},
                                     {"peak_bytes", finding.peak_bytes},
                                     {"text", finding.text},
                                     {"command", text_or_null(finding.command)}});
    }
    if (lists == SummaryLists::all) {
        out["marks"] = marks_json(report);
    }
    out["mark_count"] = report.mark_count;
    out["coverage"] = coverage_json(summary);
    out["scopes"] = json::array();
    for (std::size_t i = 0; i < report.scopes.size(); ++i) {
        out["scopes"].push_back(scope_json(report, i, resolver));
    }
    if (lists == SummaryLists::all) {
        out["labels"] = labels_json(report);
    }
    out["steps"] = json::array();
    for (const StepsSummary& steps : summary.steps) {
        out["steps"].push_back(steps_json(steps));
    }
    out["warnings"] = summary.warnings;
    return json_text(out);
}

}  // namespace memlab::report
