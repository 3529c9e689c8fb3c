// The JSON of what the program's annotations give: scopes, steps and labels.
#include "trace/json/json_members.hpp"

#include <algorithm>

#include "trace/json/oom_explanation.hpp"

namespace memlab::report {
namespace {

using trace::Aggregator;

constexpr std::size_t max_escaped_sites = 16;
constexpr std::size_t max_growing_sites = 16;
constexpr std::size_t max_live = 64;

void escaped(JsonOutput& json, const trace::ScopeTotals& scope) {
    std::uint64_t other_count = scope.escaped_count;
    std::uint64_t other_bytes = scope.escaped_bytes;
    json.key("escaped");
    json.begin_object();
    json.member("count", scope.escaped_count);
    json.member("bytes", scope.escaped_bytes);
    json.member("most_bytes", scope.most_escaped_bytes);
    json.key("sites");
    json.begin_array();
    for (std::size_t i = 0; i < std::min(max_escaped_sites, scope.escaped_from.size()); ++i) {
        const trace::SiteTable::Item& item = scope.escaped_from[i];
        json.begin_object();
        json.member("site", item.site);
        json.member("count", item.count);
        json.member("bytes", item.bytes);
        json.end_object();
        other_count -= item.count;
        other_bytes -= item.bytes;
    }
    json.end_array();
    json.key("other");
    json.begin_object();
    json.member("count", other_count);
    json.member("bytes", other_bytes);
    json.end_object();
    json.end_object();
}

void scopes(JsonOutput& json, const Aggregator& from) {
    if (from.scopes().any()) {
        json.new_line();
        json.key("scopes");
        json.begin_array();
        for (const trace::ScopeTotals& scope : from.scopes().totals(from.duration_ns())) {
            json.new_line();
            json.begin_object();
            json.key("parent");
            if (scope.parent == trace::ScopeTotals::no_parent) {
                json.null();
            } else {
                json.number(scope.parent);
            }
            json.member("kind", scope.range ? "range" : "scope");
            json.member("name", scope.name);
            json.member("entries", scope.entries);
            json.member("open", scope.open);
            json.member("duration_ns", scope.duration_ns);
            json.member("allocated_count", scope.allocated_count);
            json.member("allocated_bytes", scope.allocated_bytes);
            json.member("other_threads_count", scope.other_threads_count);
            json.member("other_threads_bytes", scope.other_threads_bytes);
            json.member("freed_count", scope.freed_count);
            json.member("freed_bytes", scope.freed_bytes);
            json.member("peak_bytes", scope.peak_bytes);
            json.member("peak_growth_bytes", scope.peak_growth_bytes);
            escaped(json, scope);
            json.end_object();
        }
        json.end_array();
    }
    const trace::UnbalancedScopes& unbalanced = from.scopes().unbalanced();
    if (unbalanced.ends_without_begin != 0 || unbalanced.ended_with_thread != 0 ||
        unbalanced.too_many_open != 0 || from.scopes().any_open()) {
        json.new_line();
        json.key("unbalanced_scopes");
        json.begin_object();
        json.member("ends_without_begin", unbalanced.ends_without_begin);
        json.member("ended_with_thread", unbalanced.ended_with_thread);
        json.member("too_many_open", unbalanced.too_many_open);
        json.member("open_at_end", from.scopes().open_count());
        json.end_object();
    }
}

/// The members of a trend, within an object that the caller opened.
void trend(JsonOutput& json, const trace::Trend& trend) {
    json.key("bytes_per_step");
    json.number(trend.bytes_per_step);
    json.member("first_bytes", trend.first_bytes);
    json.member("last_bytes", trend.last_bytes);
    json.member("min_bytes", trend.min_bytes);
    json.member("max_bytes", trend.max_bytes);
}

void blocks(JsonOutput& json, const trace::StepTotals& steps) {
    json.key("blocks");
    json.begin_object();
    json.member("steps", steps.steps_per_block);
    json.key("min_bytes");
    json.begin_array();
    for (const auto& block : steps.values) {
        json.number(block.min);
    }
    json.end_array();
    json.key("max_bytes");
    json.begin_array();
    for (const auto& block : steps.values) {
        json.number(block.max);
    }
    json.end_array();
    json.end_object();
}

void steps(JsonOutput& json, const Aggregator& from) {
    const std::vector<trace::StepTotals> all = from.steps();
    if (all.empty()) {
        return;
    }
    json.new_line();
    json.key("steps");
    json.begin_array();
    for (const trace::StepTotals& each : all) {
        json.new_line();
        json.begin_object();
        json.member("kind", trace::name_of(each.kind));
        json.member("name", each.kind == trace::StepKind::mark
                                ? from.scopes().family_text(each.path)
                                : from.scopes().path_text(each.path));
        json.member("steps", each.steps);
        json.member("warm_up_steps", each.trend.warm_up_steps);
        json.member("verdict", trace::name_of(each.verdict));
        trend(json, each.trend);
        blocks(json, each);
        json.member("by_site", each.by_site);
        json.key("growing_sites");
        json.begin_array();
        for (std::size_t i = 0; i < std::min(max_growing_sites, each.growing.size()); ++i) {
            json.begin_object();
            json.member("site", each.growing[i].site);
            trend(json, each.growing[i].trend);
            json.end_object();
        }
        json.end_array();
        json.member("growing_site_count", each.growing.size());
        json.member("sites_left_out", each.sites_left_out);
        json.end_object();
    }
    json.end_array();
}

void names(JsonOutput& json, const Aggregator& from) {
    if (!from.labels().totals().empty()) {
        json.new_line();
        json.key("labels");
        json.begin_array();
        for (const trace::LabelTotals& label : from.labels().totals()) {
            json.new_line();
            json.begin_object();
            json.member("name", label_name(from, label.name));
            json.member("count", label.count);
            json.member("live_count", label.live_count);
            json.member("live_bytes", label.live_bytes);
            json.member("peak_bytes", label.peak_bytes);
            json.end_object();
        }
        json.end_array();
    }
    const std::vector<trace::LiveTotals> largest = from.largest_live(max_live);
    if (largest.empty()) {
        return;
    }
    json.new_line();
    json.key("largest_live");
    json.begin_array();
    for (const trace::LiveTotals& live : largest) {
        json.new_line();
        json.begin_object();
        json.member("address", live.address);
        json.member("site", live.site);
        json.member("thread", live.thread);
        json.member("time_ns", live.time_ns);
        json.member("requested_bytes", live.requested);
        json.member("bytes", live.size);
        json.key("label");
        if (live.label == 0) {
            json.null();
        } else {
            json.string(from.string(live.label));
        }
        json.end_object();
    }
    json.end_array();
}

}  // namespace

void write_scopes(JsonOutput& json, const Aggregator& from) {
    scopes(json, from);
    steps(json, from);
    names(json, from);
}

}  // namespace memlab::report
