// How the other records change the figures: marks, scopes, labels, failures, GPU work, gaps.
#include <algorithm>

#include "trace/aggregate/aggregator.hpp"

namespace memlab::trace {
namespace {

std::array<std::uint64_t, 4> current_curves(const DeviceTotals& device) {
    return {device.curve(CurveName::requested).current, device.curve(CurveName::allocated).current,
            device.curve(CurveName::active).current, device.curve(CurveName::reserved).current};
}

std::uint64_t large_pool_free(const MemoryStats& stats) {
    const std::uint64_t reserved = stats.reserved_bytes.large_pool.current;
    return reserved - std::min(reserved, stats.active_bytes.large_pool.current);
}

/// How long after a failure NVML's answer still tells of it: it is asked at once.
constexpr std::uint64_t max_answer_delay_ns = 10'000'000'000;

OtherProcesses others_by(const Witness& witness) {
    return {.known = witness.state == WitnessState::seen,
            .time_ns = witness.time_ns,
            .bytes = witness.others,
            .count = witness.processes};
}

std::uint32_t gpu_of(const DeviceInfo& device) {
    return device.is_gpu() ? device.index : device.gpu;
}

}  // namespace

std::uint64_t Aggregator::total_allocated() const {
    std::uint64_t bytes = 0;
    for (const auto& device : devices_) {
        if (device != nullptr) {
            bytes += device->curve(CurveName::allocated).current - device->segment_bytes;
        }
    }
    return bytes;
}

void Aggregator::scope(const Event& event) {
    if (event.type == EventType::scope_begin) {
        scopes_.begin({.thread = event.thread, .domain = event.requested, .range = event.address},
                      event.name, strings_[event.name], now_, total_allocated(), next_serial_);
    } else if (event.stream == ended_with_thread) {
        scopes_.end_thread(event.thread, now_);
    } else {
        ended_scope_ = scopes_.end(
            {.thread = event.thread, .domain = event.requested, .range = event.address}, now_);
        const ScopeStats::Ended& ended = ended_scope_;
        if (ended.happened && !scopes_.is_of_library(ended.path) &&
            steps_.end(ended.range ? StepKind::range : StepKind::scope, ended.path,
                       total_allocated(), ended.outermost)) {
            steps_.follow_newest([this](std::uint32_t path) { return scopes_.parent_path(path); });
        }
    }
}

/// What an allocator of the program's handed out at the address and no other one cuts, else the
/// driver's allocation there.
std::uint32_t Aggregator::find_innermost(std::uint64_t address) const {
    std::uint32_t innermost = live_.find(address, AddressSpace::pointer);
    for (std::uint32_t device = DeviceInfo::max_gpus; device < devices_.size();
         device += DeviceInfo::max_gpus) {
        const std::uint32_t at = live_.find(address, suballocation_space(device));
        const bool closer =
            at != LiveTable::none && (innermost == LiveTable::none || live_[innermost].is_segment);
        innermost = closer ? at : innermost;
    }
    return innermost;
}

void Aggregator::label(const Event& event) {
    const std::uint32_t at = find_innermost(event.address);
    if (at != LiveTable::none && !live_[at].pending && !live_[at].is_segment) {
        labels_.label(event.address, event.name, live_[at].size, live_[at].site, event.api);
        live_[at].has_label = true;
        if (nn_modules_.may_be_labelled(live_[at].nn_modules)) {
            label_nn_module(at, strings_[event.name]);
        }
    }
}

void Aggregator::label_nn_module(std::uint32_t at, const std::string& label) {
    Live& live = live_[at];
    const Site& site = sites_[live.site];
    if (!counts_as_device_memory(site.kind)) {
        return;
    }
    const std::uint32_t to = nn_modules_.labelled(label, live.site);
    if (to == live.nn_modules) {
        return;
    }
    if (observer_ != nullptr) {
        observer_->moved(at, live, to);
    }
    const DeviceTotals& device = *devices_[site.device];
    nn_modules_.move(live.nn_modules, to, live.size, device.peak_number,
                     live.serial <= device.peak_serial);
    live.nn_modules = to;
}

void Aggregator::mark(const Event& event) {
    ++mark_count_;
    latest_mark_ = {event.name, next_serial_};
    steps_.end(StepKind::mark, scopes_.families().intern(event.name, strings_[event.name]),
               total_allocated(), true);
    MarkTotals mark{.type = event.type,
                    .name = event.name,
                    .thread = event.thread,
                    .time_ns = now_,
                    .devices = {}};
    const bool keep = marks_.size() < max_marks;
    for (const auto& device : devices_) {
        if (device == nullptr) {
            continue;
        }
        if (keep) {
            mark.devices.push_back({.device = device->info.index,
                                    .current = current_curves(*device),
                                    .allocated_peak = device->allocated_since_mark,
                                    .reserved_peak = device->reserved_since_mark});
        }
        device->allocated_since_mark = device->curve(CurveName::allocated).current;
        device->reserved_since_mark = device->curve(CurveName::reserved).current;
    }
    if (keep) {
        marks_.push_back(std::move(mark));
    }
}

const Live* Aggregator::suballocation_at(std::uint32_t device, std::uint64_t address) const {
    const Live* found = nullptr;
    for_each_suballocation(device, address, 1, [&](const Live& live) {
        found = address - live.address < live.size ? &live : found;
    });
    return found;
}

/// What was handed out there, by the driver or by another allocator of the program's, is from now
/// on known by its suballocations.
void Aggregator::take_as_segment(const Event& segment) {
    const std::uint32_t at = find_innermost(segment.address);
    if (at == LiveTable::none || live_[at].is_segment || live_[at].pending ||
        live_[at].space == address_space(segment)) {
        return;
    }
    Live& live = live_[at];
    const Site& site = sites_[live.site];
    if (!counts_as_device_memory(site.kind)) {
        return;
    }
    if (observer_ != nullptr) {
        observer_->split(at, live);
    }
    before_live_change(live.site, false);
    if (scopes_.any_open()) {
        scopes_.freed(segment.thread, live.scopes, live.site, live.size, live.serial);
    }
    live.is_segment = true;
    devices_[site.device]->segment_bytes += live.size;
}

/// What the process has reserved on the GPU of an allocator, beside it.
std::uint64_t Aggregator::reserved_beside(const DeviceTotals& allocator) const {
    const std::uint32_t gpu = allocator.info.gpu;
    if (allocator.info.is_gpu() || gpu >= devices_.size() || devices_[gpu] == nullptr) {
        return 0;
    }
    const std::uint64_t all = devices_[gpu]->curve(CurveName::reserved).current;
    return all - std::min(all, allocator.curve(CurveName::reserved).current);
}

void Aggregator::on(const OomEvent& record) {
    guarded([&] {
        OomEvent event = record;
        advance(event.time_ns);
        event.time_ns = now_;
        ++oom_count_;
        DeviceTotals& device = *devices_[event.device];
        device.pool.stats.num_ooms +=
            event.kind == MemoryKind::device || event.kind == MemoryKind::suballocation ? 1 : 0;
        if (ooms_.size() < max_ooms) {
            OomTotals totals{.event = event,
                             .current = current_curves(device),
                             .pool = {.reserved = device.pool.stats.reserved_bytes.all.current,
                                      .active = device.pool.stats.active_bytes.all.current,
                                      .allocated = device.pool.stats.allocated_bytes.all.current,
                                      .largest_free = device.pool.largest_gap(),
                                      .large_free = large_pool_free(device.pool.stats)},
                             .reserved_beside = reserved_beside(device),
                             .kinds = {},
                             .holders = composition_now(event.device, max_oom_holders),
                             .allocations = {},
                             .labels = {},
                             .allocations_on_gpu = 0,
                             .others = {}};
            for (std::size_t kind = 0; kind < totals.kinds.size(); ++kind) {
                totals.kinds[kind] = device.kinds[kind].live_bytes;
            }
            totals.allocations.reserve(totals.holders.sites.size());
            for (const Holder& holder : totals.holders.sites) {
                totals.allocations.push_back(sites_[holder.site].count);
            }
            if (labels_.any_live()) {
                totals.labels = holder_labels(totals.holders);
            }
            const std::uint32_t gpu = gpu_of(device.info);
            if (gpu < devices_.size() && devices_[gpu] != nullptr) {
                for (const KindTotals& kind : devices_[gpu]->kinds) {
                    totals.allocations_on_gpu += kind.count;
                }
                if (!devices_[gpu]->ledger.witnesses().empty()) {
                    totals.others = others_by(devices_[gpu]->ledger.witnesses().back());
                }
            }
            ooms_.push_back(std::move(totals));
        }
    });
}

void Aggregator::on(const LedgerEntry& record) {
    guarded([&] {
        advance(record.time_ns);
        DeviceTotals& device = *devices_[record.device];
        device.ledger.on(record, device.recorded());
    });
}

void Aggregator::on(const Witness& record) {
    guarded([&] {
        Witness witness = record;
        advance(witness.time_ns);
        witness.time_ns = now_;
        devices_[witness.device]->ledger.on(witness);
        // NVML is asked when an allocation fails; its answer comes later.
        for (OomTotals& oom : ooms_) {
            if (gpu_of(devices_[oom.event.device]->info) == witness.device &&
                witness.state == WitnessState::seen &&
                (!oom.others.known || oom.others.time_ns < oom.event.time_ns) &&
                witness.time_ns - oom.event.time_ns <= max_answer_delay_ns) {
                oom.others = others_by(witness);
            }
        }
    });
}

void Aggregator::on(const CommunicatorMemory& record) {
    guarded([&] {
        CommunicatorMemory memory = record;
        advance(memory.time_ns);
        memory.time_ns = now_;
        devices_[memory.device]->ledger.on(memory);
    });
}

void Aggregator::on(const MemoryMoved& record) {
    guarded([&] {
        advance(record.time_ns);
        DeviceTotals& device = *devices_[record.device];
        const std::uint64_t movable =
            device.pool.stats.reserved_bytes.all.current +
            device.kinds[static_cast<std::size_t>(MemoryKind::vmm)].live_bytes;
        device.moved(std::min(record.away, movable), now_);
        commit(device);
    });
}

void Aggregator::on(const Missed& missed) {
    guarded([&] {
        advance(missed.time_ns);
        const auto [at, is_new] = missed_index_.try_emplace(missed.reason, missed_.size());
        if (is_new) {
            missed_.push_back(
                {.reason = missed.reason, .first_time_ns = now_, .figures = missed.figures});
        }
        MissedTotals& totals = missed_[at->second];
        if (totals.figures == Figures::complete || missed.figures == Figures::at_least) {
            totals.figures = missed.figures;
        }
        totals.count += missed.count;
        totals.bytes += missed.bytes;
    });
}

std::uint64_t PeakMoment::end_ns(std::uint64_t peak_ns) const {
    constexpr std::uint64_t never = ~std::uint64_t{0};
    const std::uint64_t min_end = peak_ns > never - min_ns ? never : peak_ns + min_ns;
    return holds ? never : std::max(fell_ns, min_end);
}

// Work is recorded after it has ended. So all work recorded before a new peak ran before it, and
// none has to be kept for later peaks.
void Aggregator::on(const Work& work) {
    guarded([&] {
        DeviceTotals& device = *devices_[work.device];
        WorkTotals& totals = device.work[static_cast<std::size_t>(work.kind)];
        ++totals.count;
        totals.busy_ns += work.end_ns - work.start_ns;
        totals.bytes += work.kind == WorkKind::kernel ? 0 : work.bytes;
        const Curve& allocated = device.curve(CurveName::allocated);
        const std::uint64_t begin = allocated.peak_time_ns;
        const std::uint64_t end = device.peak_moment.end_ns(begin);
        if (work.kind != WorkKind::kernel || allocated.peak == 0 || work.start_ns >= end ||
            work.end_ns < begin) {
            return;
        }
        KernelAtPeak& kernel = device.peak_moment.kernels[work.name];
        kernel.name = work.name;
        ++kernel.count;
        kernel.busy_ns += std::min(work.end_ns, end) - std::max(work.start_ns, begin);
    });
}

std::vector<KernelAtPeak> Aggregator::kernels_at_peak(std::uint32_t device) const {
    std::vector<KernelAtPeak> kernels;
    for (const auto& [name, kernel] : devices_[device]->peak_moment.kernels) {
        kernels.push_back(kernel);
    }
    std::sort(kernels.begin(), kernels.end(), [](const KernelAtPeak& a, const KernelAtPeak& b) {
        return a.busy_ns != b.busy_ns ? a.busy_ns > b.busy_ns : a.name < b.name;
    });
    return kernels;
}

void Aggregator::on(const Bypass& bypass) {
    guarded([&] {
        advance(bypass.time_ns);
        ++bypassed_count_;
        bypassed_bytes_ += bypass.bytes;
        const auto same = [&bypass](const BypassTotals& totals) {
            return totals.device == bypass.device && totals.kind == bypass.kind &&
                   totals.api == bypass.api && totals.stack == bypass.stack;
        };
        auto at = std::find_if(bypasses_.begin(), bypasses_.end(), same);
        if (at == bypasses_.end()) {
            if (bypasses_.size() == max_bypasses) {
                return;
            }
            at = bypasses_.insert(at, {.device = bypass.device,
                                       .kind = bypass.kind,
                                       .api = bypass.api,
                                       .stack = bypass.stack,
                                       .first_time_ns = bypass.time_ns});
        }
        ++at->count;
        at->bytes += bypass.bytes;
    });
}

void Aggregator::on(const Coverage& record) {
    guarded([&] {
        advance(record.time_ns);
        coverage_ = record;
    });
}

void Aggregator::on(const LogStopped& record) {
    guarded([&] {
        advance(record.time_ns);
        log_stopped_ns_ = record.time_ns;
        end_.log_stopped_because = record.reason;
        end_.events_dropped = record.events_dropped;
    });
}

void Aggregator::on(const End& record) {
    guarded([&] {
        advance(record.time_ns);
        const LogStopped stopped{.reason = end_.log_stopped_because,
                                 .events_dropped = end_.events_dropped};
        end_ = record;
        end_.events_dropped = std::max(end_.events_dropped, stopped.events_dropped);
        if (end_.log_stopped_because.empty()) {
            end_.log_stopped_because = stopped.reason;
        }
        has_end_ = true;
        ended_ = record.kind == EndKind::quick_exit ? Ended::quick_exit : Ended::exit;
    });
}

void Aggregator::on(const DeviceSample& record) {
    guarded([&] {
        advance(record.time_ns);
        DeviceTotals& device = *devices_[record.device];
        device.sampled = true;
        device.curve(CurveName::device_used).current = std::min(record.used, Timeline::unknown - 1);
        commit(device);
        DeviceSample sample = record;
        sample.time_ns = now_;
        device.ledger.on(sample, device.recorded());
    });
}

void Aggregator::on(const ContextLost& record) {
    guarded([&] {
        advance(record.time_ns);
        ContextTotals& context = contexts_[record.context - 1];
        if (!context.lost) {
            context.lost = true;
            context.lost_time_ns = now_;
        }
        std::vector<std::uint32_t> lost = live_.find_by_context(record.context);
        // By address, so that the figures do not depend on the order of a table.
        std::sort(lost.begin(), lost.end(), [this](std::uint32_t a, std::uint32_t b) {
            const Live& first = live_[a];
            const Live& second = live_[b];
            return first.space != second.space ? first.space < second.space
                                               : first.address < second.address;
        });
        for (const std::uint32_t at : lost) {
            end_life(at, {.cause = LifeEnd::Cause::context_lost});
        }
        for (const auto& device : devices_) {
            if (device == nullptr) {
                continue;
            }
            for (const std::uint64_t base : device->pool.context_segments(record.context)) {
                device->no_longer_reserved(remove_segment(*device, base));
            }
            commit(*device);
        }
    });
}

}  // namespace memlab::trace
