// The ledger of a GPU, as the report has it.
#include <algorithm>

#include "model/report_builder.hpp"

namespace memlab::model {
namespace {

LedgerMoment moment(const trace::LedgerMoment& from) {
    using trace::MemoryKind;
    const trace::RecordedBytes& recorded = from.recorded;
    return {.time_ns = from.time_ns,
            .used = from.used,
            .reserved = recorded.reserved,
            .pool_reserved = recorded.pool_reserved,
            .pool_active = recorded.pool_active,
            .segments = recorded.segments,
            .arrays = recorded.of(MemoryKind::array),
            .async_pool = recorded.of(MemoryKind::async_pool),
            .vmm = recorded.of(MemoryKind::vmm),
            .graphs = recorded.of(MemoryKind::graph),
            .managed = recorded.of(MemoryKind::managed),
            .imports = recorded.of(MemoryKind::ipc_import),
            .driver_pools = from.pools,
            .growth = from.growth};
}

/// Contexts are numbered in the order of their first rows: handles differ from run to run.
std::uint64_t number_of(std::uint64_t context, std::vector<std::uint64_t>& known) {
    if (context == 0) {
        return 0;
    }
    const auto found = std::find(known.begin(), known.end(), context);
    if (found != known.end()) {
        return static_cast<std::uint64_t>(found - known.begin()) + 1;
    }
    known.push_back(context);
    return known.size();
}

}  // namespace

void ReportBuilder::add_limit(trace::LimitSource source, const trace::GroupLimit& from,
                              std::uint64_t capacity, std::vector<GroupLimit>& to) const {
    if (from.group == 0) {
        return;
    }
    GroupLimit limit{.source = trace::name_of(source),
                     .group = text(from.group),
                     .used_bytes = from.used,
                     .guaranteed_bytes = from.guaranteed,
                     .capacity_bytes = capacity};
    if (from.limit != trace::GroupLimit::unlimited) {
        limit.limit_bytes = from.limit;
    }
    to.push_back(std::move(limit));
}

std::optional<Ledger> ReportBuilder::ledger(const trace::Ledger& from) const {
    const std::optional<trace::LedgerMoment> latest = from.latest();
    if (!from.kept() || !latest) {
        return std::nullopt;
    }
    Ledger out;
    out.latest = moment(*latest);
    const trace::LedgerMoment& peak = from.peak() ? *from.peak() : *latest;
    out.peak = moment(peak);
    std::vector<std::uint64_t> contexts;
    out.rows.reserve(from.rows().size());
    for (std::size_t i = 0; i < from.rows().size(); ++i) {
        const trace::LedgerRow& row = from.rows()[i];
        out.rows.push_back({.kind = trace::name_of(row.kind),
                            .api = text(row.api),
                            .stack = row.stack,
                            .object = text(row.object),
                            .context = number_of(row.context, contexts),
                            .count = row.count,
                            .at_peak_bytes = i < peak.rows.size() ? peak.rows[i] : 0,
                            .bytes = row.bytes,
                            .max_bytes = row.max_bytes,
                            .uncertain = row.uncertain,
                            .whole = row.whole,
                            .estimated = row.estimated});
    }
    for (const std::uint64_t skipped : from.skipped()) {
        out.not_measured += std::min(skipped, ~out.not_measured);
    }
    for (const trace::Witness& witness : from.witnesses()) {
        out.witnesses.push_back({.time_ns = witness.time_ns,
                                 .state = trace::name_of(witness.state),
                                 .own_bytes = witness.own,
                                 .other_bytes = witness.others,
                                 .other_processes = witness.processes,
                                 .group_bytes = witness.group_bytes,
                                 .group_processes = witness.group_processes,
                                 .foreign_bytes = witness.foreign_bytes,
                                 .foreign_processes = witness.foreign_processes});
        std::vector<GroupLimit>& limits = out.witnesses.back().limits;
        add_limit(trace::LimitSource::dmem, witness.dmem, witness.capacity, limits);
        add_limit(trace::LimitSource::nvml, witness.nvml, 0, limits);
    }
    for (const trace::Communicator& each : from.communicators()) {
        const trace::CommunicatorMemory& latest = each.latest;
        out.communicators.push_back({.communicator = latest.communicator,
                                     .rank = latest.rank,
                                     .ranks = latest.ranks,
                                     .time_ns = latest.time_ns,
                                     .total_bytes = latest.total,
                                     .persistent_bytes = latest.persistent,
                                     .suspendable_bytes = latest.suspendable,
                                     .max_total_bytes = each.max_total,
                                     .suspended = latest.suspended,
                                     .ended = latest.ended});
    }
    return out;
}

}  // namespace memlab::model
