// The what-if as JSON; docs/whatif.md describes every member.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/summary/json_values.hpp"
#include "report/text/names.hpp"
#include "report/whatif/render.hpp"
#include "trace/event.hpp"

namespace memlab::report::whatif {

namespace {

using json = nlohmann::ordered_json;

const char* name_of(PolicyKind kind) {
    static constexpr const char* names[] = {"allocator", "lower_bound", "offline"};
    return trace::name_in<PolicyKind::offline>(names, kind);
}

json share_json(std::uint64_t part, std::uint64_t whole) {
    if (whole == 0) {
        return nullptr;
    }
    return 1 - static_cast<double>(std::min(part, whole)) / static_cast<double>(whole);
}

json failure_json(const Program& program, const Row& row, const DescribeStack& describe_stack) {
    if (!row.outcome.failure) {
        return nullptr;
    }
    const Failure& failure = *row.outcome.failure;
    const Allocation& asked = program.allocations[failure.allocation];
    return {{"event", asked.event},
            {"time_ns", asked.time_ns},
            {"thread", asked.thread},
            {"requested_bytes", asked.requested},
            {"allocated_bytes", failure.allocated},
            {"reserved_bytes", failure.reserved},
            {"place", describe_stack(asked.stack)}};
}

json row_json(const Program& program, const Row& row, const DescribeStack& describe_stack) {
    const Outcome& outcome = row.outcome;
    json out = {{"policy", row.policy.name},
                {"label", row.policy.label},
                {"kind", name_of(row.policy.kind)},
                {"reserved_peak_bytes", outcome.reserved_peak},
                {"fits", row.fits()}};
    if (row.policy.kind == PolicyKind::offline) {
        out["order"] = row.packing.order;
        out["orders_tried"] = row.packing.tried;
        out["orders_given_up"] = row.packing.limited;
    }
    if (row.policy.kind != PolicyKind::allocator) {
        return out;
    }
    out["allocated_peak_bytes"] = outcome.allocated_peak;
    out["active_peak_bytes"] = outcome.active_peak;
    out["fragmentation"] = {
        {"at_peak", share_json(outcome.active_peak, outcome.reserved_peak)},
        {"external", share_json(outcome.at_growth.largest, outcome.at_growth.total)},
        {"internal", share_json(outcome.requested_at_peak, outcome.allocated_peak)}};
    out["driver"] = {{"allocs", outcome.calls.allocs},
                     {"frees", outcome.calls.frees},
                     {"maps", outcome.calls.maps},
                     {"unmaps", outcome.calls.unmaps},
                     {"time_ns", outcome.calls.time_ns}};
    out["failure"] = failure_json(program, row, describe_stack);
    out["attempts_served"] = outcome.attempts_served;
    return out;
}

json name_or_null(const Table& table, std::optional<std::size_t> row) {
    return row ? json(table.rows[*row].policy.name) : json(nullptr);
}

json table_json(const Table& table, const DescribeStack& describe_stack) {
    const Program& program = *table.program;
    json out = {
        {"index", program.device.index},
        {"name", program.device.name},
        {"total_bytes", program.device.total_bytes},
        {"capacity_bytes", table.capacity},
        {"limited", table.limited},
        {"outside_bytes", program.outside_known ? json(program.outside_bytes) : json(nullptr)},
        {"allocations", program.allocations.size()},
        {"held_requested_bytes", table.bound.requested},
        {"held_bytes", table.bound.rounded},
        {"recorded",
         {{"reserved_peak_bytes", program.recorded.reserved_peak},
          {"segment_allocs", program.recorded.segment_allocs},
          {"segment_frees", program.recorded.segment_frees},
          {"pooled", program.recorded.pooled},
          {"failed", program.recorded.failed},
          {"inconsistencies", program.inconsistencies}}}};
    out["as_recorded"] = table.is_as_recorded;
    out["attempts"] = program.attempts;
    out["rows"] = json::array();
    for (const Row& row : table.rows) {
        out["rows"].push_back(row_json(program, row, describe_stack));
    }
    out["choice"] = {{"policy", name_or_null(table, table.choice.row)},
                     {"ours", name_or_null(table, table.choice.ours)},
                     {"least", name_or_null(table, table.choice.least)},
                     {"why", table.choice.why}};
    out["notes"] = table.notes;
    return out;
}

}  // namespace

std::string render_json(const std::string& log, const Recording& recording,
                        const std::vector<Table>& tables, const DescribeStack& describe_stack) {
    const std::string& path = recording.process.executable;
    json out = {{"schema", "memlab-whatif-v1"},
                {"log", log},
                {"process", {{"name", report::base_name(path)}, {"pid", recording.process.pid}}},
                {"warning", recording.warning.empty() ? json(nullptr) : json(recording.warning)}};
    out["devices"] = json::array();
    for (const Table& table : tables) {
        out["devices"].push_back(table_json(table, describe_stack));
    }
    return report::json_text(out) + "\n";
}

}  // namespace memlab::report::whatif
