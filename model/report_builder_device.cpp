// The devices of a report, and the allocations that failed on them.
#include <algorithm>
#include <string_view>

#include "model/oom_explanation.hpp"
#include "model/report_builder.hpp"
#include "model/utf8.hpp"
#include "trace/aggregate/memory_stat_keys.hpp"

namespace memlab::model {
namespace {

static_assert(Holders::max_oom_sites == trace::Aggregator::max_oom_holders);
static_assert(TimelineRow::unknown == trace::Timeline::unknown);
static_assert(curve_count == trace::curve_count);

void add_kinds(const trace::DeviceTotals& from, Named<KindTotals>& to) {
    for (std::size_t i = 0; i < from.kinds.size(); ++i) {
        const trace::KindTotals& kind = from.kinds[i];
        if (kind.count != 0) {
            to.add(trace::name_of(static_cast<trace::MemoryKind>(i)),
                   {kind.count, kind.bytes, kind.peak_bytes, kind.live_count, kind.live_bytes});
        }
    }
}

/// Whether an allocator of the program's told this statistic.
bool is_told(std::string_view name, std::string_view pool) {
    return pool == ".all"
               ? name == "allocation" || name == "allocated_bytes" || name == "reserved_bytes"
               : name == "num_ooms";
}

void add_memory_stats(const trace::DeviceTotals& from, Named<std::uint64_t>& to) {
    trace::visit_memory_stats(from.pool.stats, [&](std::string_view name, std::string_view pool,
                                                   std::string_view figure, std::uint64_t value) {
        if (from.info.is_gpu() || is_told(name, pool)) {
            to.add(std::string(name).append(pool).append(figure), value);
        }
    });
}

/// 1 - part / whole; unknown without a whole.
std::optional<double> ratio(std::uint64_t part, std::uint64_t whole) {
    if (whole == 0) {
        return std::nullopt;
    }
    const std::uint64_t missing = whole - std::min(part, whole);
    return static_cast<double>(missing) / static_cast<double>(whole);
}

void set_timeline(const trace::Timeline& from, Timeline& to) {
    to.start_ns = from.start_ns();
    to.bucket_ns = from.bucket_ns();
    to.rows.reserve(static_cast<std::size_t>(
        std::count_if(from.buckets().begin(), from.buckets().end(),
                      [](const trace::Timeline::Bucket& bucket) { return bucket.used; })));
    std::uint64_t begin_ns = to.start_ns;
    for (const trace::Timeline::Bucket& bucket : from.buckets()) {
        if (bucket.used) {
            TimelineRow& row = to.rows.emplace_back();
            row.begin_ns = begin_ns;
            for (std::size_t c = 0; c < curve_count; ++c) {
                if (!may_be_unknown(c) || bucket.max[c] != TimelineRow::unknown) {
                    row.curves[c] =
                        TimelineRow::Values{bucket.min[c], bucket.max[c], bucket.last[c]};
                }
            }
        }
        begin_ns += to.bucket_ns;
    }
}

KindCurve kind_curve(const trace::KindCurve& from) {
    KindCurve to;
    const trace::Curve& curve = from.curve();
    to.curve = {curve.peak, curve.peak_time_ns, curve.current};
    const trace::TimelineOf<1>& timeline = from.timeline();
    to.bucket_ns = timeline.bucket_ns();
    for (std::size_t i = 0; i < timeline.buckets().size(); ++i) {
        const auto& bucket = timeline.buckets()[i];
        if (bucket.used) {
            to.rows.push_back({timeline.start_ns() + i * to.bucket_ns, bucket.min[0], bucket.max[0],
                               bucket.last[0]});
        }
    }
    return to;
}

void add_work(const trace::DeviceTotals& from, std::optional<Named<WorkTotals>>& to) {
    to.emplace();
    for (int kind = 0; kind < trace::work_kind_count; ++kind) {
        const trace::WorkTotals& totals = from.work[static_cast<std::size_t>(kind)];
        to->add(trace::name_of(static_cast<trace::WorkKind>(kind)),
                {totals.count, totals.busy_ns, totals.bytes});
    }
}

void add_labels(const std::vector<MemoryLabel>& from, std::vector<MemoryLabel>& to) {
    const std::size_t count = std::min<std::size_t>(max_site_labels, from.size());
    for (std::size_t i = 0; i < count; ++i) {
        to.push_back(
            {valid_utf8(from[i].name), from[i].count, from[i].bytes, valid_utf8(from[i].detail)});
    }
}

}  // namespace

Device ReportBuilder::device(const trace::DeviceTotals& from) const {
    Device out;
    out.index = from.info.index;
    out.name = valid_utf8(from.info.name);
    out.uuid = valid_utf8(from.info.uuid);
    out.total_bytes = from.info.total_bytes;
    out.limit_bytes = limit(from.info.limit_bytes);
    out.driver_version = std::max(0, from.info.driver_version);  // of a damaged log, below 0
    if (!from.info.is_gpu()) {
        out.allocator = valid_utf8(from.info.allocator);
        out.on_gpu = from.info.gpu;
    }
    for (std::size_t c = 0; c < curve_count; ++c) {
        const trace::Curve& curve = from.curves[c];
        if (!may_be_unknown(c) || from.sampled) {
            out.curves[c] = CurveSummary{curve.peak, curve.peak_time_ns, curve.current};
        }
    }
    add_kinds(from, out.kinds);
    add_memory_stats(from, out.memory_stats);
    if (from.info.is_gpu()) {
        out.max_split_size = from.pool.stats.max_split_size;
    }
    const trace::Fragmentation& figures = from.fragmentation;
    out.fragmentation = {
        ratio(figures.peak_active, figures.peak_reserved),
        ratio(figures.largest_free, figures.total_free),
        // An allocator of the program's does not tell what was asked for.
        ratio(figures.requested_at_peak, from.info.is_gpu() ? figures.allocated_at_peak : 0),
        figures.largest_free, figures.total_free};
    set_timeline(from.timeline, out.timeline);
    out.at_peak = holders(from_.composition_at_peak(from.info.index, Holders::max_sites));
    out.at_peak.time_ns = from.curve(trace::CurveName::allocated).peak_time_ns;
    if (from.at_peak_known) {
        const auto at_peak = [&from](trace::CurveName name) {
            return from.at_peak[static_cast<std::size_t>(name)];
        };
        out.curves_at_peak =
            CurvesAtPeak{at_peak(trace::CurveName::reserved), at_peak(trace::CurveName::active),
                         at_peak(trace::CurveName::requested)};
    }
    out.live = holders(from_.composition_now(from.info.index, Holders::max_sites));
    for (const auto& [kind, curve] : from.kind_curves) {
        if (!curve) {
            continue;
        }
        if (!out.kind_curves) {
            out.kind_curves.emplace();
        }
        KindCurve& of_kind = out.kind_curves->add(trace::name_of(kind), kind_curve(*curve));
        const std::size_t most = Holders::max_sites;
        of_kind.at_peak = holders(from_.kind_at_peak(from.info.index, kind, most));
        of_kind.live = holders(from_.kind_now(from.info.index, kind, most));
    }
    static_assert(Device::max_absences == trace::DeviceTotals::max_absences);
    std::transform(from.absences.begin(), from.absences.end(), std::back_inserter(out.absences),
                   [](const trace::Absence& each) {
                       return Absence{each.begin_ns,
                                      each.end_ns != 0 ? std::optional(each.end_ns) : std::nullopt,
                                      each.bytes};
                   });
    out.ledger = ledger(from.ledger);
    if (std::none_of(from.work.begin(), from.work.end(),
                     [](const trace::WorkTotals& totals) { return totals.count != 0; })) {
        return out;
    }
    add_work(from, out.work);
    KernelsAtPeak& at_peak = out.kernels_at_peak.emplace();
    at_peak.from_ns = out.at_peak.time_ns;
    at_peak.to_ns = std::min(from.peak_moment.end_ns(at_peak.from_ns), from_.duration_ns());
    for (const trace::KernelAtPeak& kernel : from_.kernels_at_peak(from.info.index)) {
        if (at_peak.kernels.size() < KernelsAtPeak::max_kernels) {
            at_peak.kernels.push_back({text(kernel.name), kernel.count, kernel.busy_ns});
        } else {
            ++at_peak.other_names;
            at_peak.other_count += kernel.count;
            at_peak.other_ns += kernel.busy_ns;
        }
    }
    return out;
}

void ReportBuilder::each(EntryTaker<Device>& to) const {
    for (const auto& each : from_.devices()) {
        if (each != nullptr) {
            to.take(device(*each));
        }
    }
}

void ReportBuilder::each(EntryTaker<Oom>& to) const {
    for (const trace::OomTotals& oom : from_.ooms()) {
        const trace::OomEvent& event = oom.event;
        Oom out;
        out.time_ns = event.time_ns;
        out.device = event.device;
        out.context = event.context;
        out.thread = event.thread;
        out.api = text(event.api);
        out.stack = event.stack;
        out.kind = trace::name_of(event.kind);
        out.requested_bytes = event.requested;
        out.device_free_bytes = event.device_free;
        out.device_total_bytes = event.device_total;
        out.limit_bytes = limit(event.limit);
        out.largest_free_block_bytes = event.largest_free_block;
        out.error = event.error;
        out.current = curve_values(oom.current);
        out.pool = {oom.pool.reserved, oom.pool.active, oom.pool.allocated, oom.pool.largest_free,
                    oom.pool.large_free};
        for (std::size_t kind = 0; kind < oom.kinds.size(); ++kind) {
            if (oom.kinds[kind] != 0) {
                out.kinds.add(trace::name_of(static_cast<trace::MemoryKind>(kind)),
                              oom.kinds[kind]);
            }
        }
        if (event.limit_source != trace::LimitSource::none) {
            add_limit(event.limit_source, event.group_limit, 0, out.group_limits);
        }
        if (oom.others.known) {
            out.others = Oom::Others{oom.others.bytes, oom.others.count, oom.others.time_ns};
        }
        const OomFigures figures = oom_figures(from_, oom);
        out.refused_by = refused_by(figures);
        out.holders = holders(oom.holders);
        for (std::size_t i = 0; i < out.holders.sites.size(); ++i) {
            out.holders.sites[i].allocations = oom.allocations[i];
            add_labels(figures.labels[i], out.holders.sites[i].labels);
        }
        for (const std::string& sentence : explain_oom(figures)) {
            out.explanation.push_back(valid_utf8(sentence));
        }
        to.take(std::move(out));
    }
}

}  // namespace memlab::model
