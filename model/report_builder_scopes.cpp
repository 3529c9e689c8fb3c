// The parts of a report made of the program's annotations: scopes, steps, labels, marks and
// nn.Modules.
#include <algorithm>
#include <utility>
#include <vector>

#include "model/oom_explanation.hpp"
#include "model/report_builder.hpp"
#include "model/utf8.hpp"

namespace memlab::model {
namespace {

void set_escaped(const trace::ScopeTotals& from, Holders& to) {
    to.count = from.escaped_count;
    to.bytes = from.escaped_bytes;
    to.other_count = from.escaped_count;
    to.other_bytes = from.escaped_bytes;
    const std::size_t listed = std::min(Scope::max_escaped_sites, from.escaped_from.size());
    for (std::size_t i = 0; i < listed; ++i) {
        const trace::SiteTable::Item& item = from.escaped_from[i];
        to.sites.push_back({item.site, item.count, item.bytes});
        to.other_count -= item.count;
        to.other_bytes -= item.bytes;
    }
}

Trend trend(const trace::Trend& from) {
    return {from.bytes_per_step, from.first_bytes, from.last_bytes, from.min_bytes, from.max_bytes};
}

}  // namespace

void ReportBuilder::each(EntryTaker<Mark>& to) const {
    for (const trace::MarkTotals& mark : from_.marks()) {
        Mark out;
        out.type = trace::name_of(mark.type);
        out.name = text(mark.name);
        out.time_ns = mark.time_ns;
        out.thread = mark.thread;
        for (const trace::MarkedDevice& device : mark.devices) {
            out.devices.push_back({device.device, curve_values(device.current),
                                   device.allocated_peak, device.reserved_peak});
        }
        to.take(std::move(out));
    }
}

void ReportBuilder::each(EntryTaker<Scope>& to) const {
    for (const trace::ScopeTotals& scope : from_.scopes().totals(from_.duration_ns())) {
        Scope out;
        if (scope.parent != trace::ScopeTotals::no_parent) {
            out.parent = scope.parent;
        }
        out.kind = scope.range ? "range" : "scope";
        out.name = valid_utf8(scope.name);
        out.entries = scope.entries;
        out.open = scope.open;
        out.duration_ns = scope.duration_ns;
        out.allocated_count = scope.allocated_count;
        out.allocated_bytes = scope.allocated_bytes;
        out.other_threads_count = scope.other_threads_count;
        out.other_threads_bytes = scope.other_threads_bytes;
        out.freed_count = scope.freed_count;
        out.freed_bytes = scope.freed_bytes;
        out.peak_bytes = scope.peak_bytes;
        out.peak_growth_bytes = scope.peak_growth_bytes;
        out.max_escaped_bytes = scope.most_escaped_bytes;
        set_escaped(scope, out.escaped);
        to.take(std::move(out));
    }
}

std::string step_name(const trace::Aggregator& from, trace::StepKind kind, std::uint32_t path) {
    if (kind == trace::StepKind::found) {
        return "loop";
    }
    return valid_utf8(kind == trace::StepKind::mark ? from.scopes().family_text(path)
                                                    : from.scopes().path_text(path));
}

void ReportBuilder::each(EntryTaker<Steps>& to) const {
    for (const trace::StepTotals& steps : from_.steps()) {
        Steps out;
        out.kind = trace::name_of(steps.kind);
        out.name = step_name(from_, steps.kind, steps.path);
        out.steps = steps.steps;
        out.warm_up_steps = steps.trend.warm_up_steps;
        out.verdict = trace::name_of(steps.verdict);
        out.trend = trend(steps.trend);
        out.steps_per_block = steps.steps_per_block;
        for (const auto& block : steps.values) {
            out.block_min_bytes.push_back(block.min);
            out.block_max_bytes.push_back(block.max);
        }
        out.by_site = steps.by_site;
        const std::size_t listed = std::min(Steps::max_growing, steps.growing.size());
        for (std::size_t i = 0; i < listed; ++i) {
            out.growing.push_back({steps.growing[i].site, trend(steps.growing[i].trend)});
        }
        out.growing_site_count = steps.growing.size();
        out.sites_left_out = steps.sites_left_out;
        to.take(std::move(out));
    }
}

void ReportBuilder::each(EntryTaker<Label>& to) const {
    for (const trace::LabelTotals& label : from_.labels().totals()) {
        to.take({valid_utf8(label_name(from_, label.name)), label.count, label.live_count,
                 label.live_bytes, label.peak_bytes, text(label.detail)});
    }
}

NnModuleStack nn_module_stack(const trace::Aggregator& from, std::size_t holder) {
    const trace::NnModuleStats& modules = from.nn_modules();
    const trace::NnModuleHolder& of = modules.holders()[holder];
    NnModuleStack out;
    out.by_label = of.stack == 0;
    if (!out.by_label && modules.stacks()[of.stack - 1].parent != 0) {
        out.parent = modules.holder_of_stack(modules.stacks()[of.stack - 1].parent) - 1;
    }
    out.nn_module = of.nn_module;
    name_nn_module(from, of.nn_module, out);
    return out;
}

void ReportBuilder::each(EntryTaker<NnModuleStack>& to) const {
    const trace::NnModuleStats& from = from_.nn_modules();
    std::vector<std::vector<NnModuleStack::Holding>> held(from.holders().size());
    for (const trace::NnModuleHolding& each : from.holdings()) {
        const trace::Holder at_peak = from_.held_at_peak(each);
        if (at_peak.count != 0 || each.live_count != 0) {
            held[each.holder - 1].push_back({each.site, each.count, each.bytes, at_peak.count,
                                             at_peak.bytes, each.live_count, each.live_bytes});
        }
    }
    for (std::size_t i = 0; i < held.size(); ++i) {
        NnModuleStack out = nn_module_stack(from_, i);
        out.sites = std::move(held[i]);
        to.take(std::move(out));
    }
}

void ReportBuilder::each(EntryTaker<LiveAllocation>& to) const {
    for (const trace::LiveTotals& live : from_.largest_live(LiveAllocation::max_entries)) {
        to.take({live.address, live.site, live.thread, live.time_ns, live.requested, live.size,
                 live.label == 0 ? std::nullopt : std::optional(text(live.label)),
                 text(live.label_detail)});
    }
}

}  // namespace memlab::model
