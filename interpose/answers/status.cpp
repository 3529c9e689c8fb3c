// What the process is, and what it holds: `status`.
#include <unistd.h>

#include <algorithm>
#include <new>
#include <optional>
#include <string>

#include "interpose/answers/answers.hpp"
#include "interpose/control/oom_hold.hpp"
#include "interpose/moving/mover.hpp"
#include "interpose/moving/staying.hpp"
#include "interpose/process/process_description.hpp"
#include "interpose/process/session.hpp"
#include "model/live/live_documents.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

using model::StatusDocument;
using trace::CurveName;
using trace::DeviceTotals;
using trace::MemoryKind;

/// Adds the allocations of a device of the recording.
void add_counts(const DeviceTotals& device, StatusDocument::Gpu& gpu) {
    for (std::size_t kind = 0; kind < device.kinds.size(); ++kind) {
        const auto each = static_cast<MemoryKind>(kind);
        if (trace::counts_as_device_memory(each)) {
            gpu.allocation_count += device.kinds[kind].count;
            gpu.live_count += device.kinds[kind].live_count;
        }
    }
}

StatusDocument::Gpu gpu_of(const DeviceTotals& device) {
    StatusDocument::Gpu gpu;
    gpu.gpu = device.info.index;
    gpu.uuid = device.info.uuid;
    gpu.name = device.info.name;
    gpu.allocated_bytes = device.curve(CurveName::allocated).current;
    gpu.max_allocated_bytes = device.curve(CurveName::allocated).peak;
    gpu.reserved_bytes = device.curve(CurveName::reserved).current;
    gpu.max_reserved_bytes = device.curve(CurveName::reserved).peak;
    gpu.cached_bytes =
        gpu.reserved_bytes - std::min(gpu.reserved_bytes, device.curve(CurveName::active).current);
    add_counts(device, gpu);
    if (device.info.total_bytes != 0) {
        gpu.total_bytes = device.info.total_bytes;
    }
    if (device.sampled && gpu.total_bytes) {
        // The driver is not asked again: an answer must not wait where the program hangs in it.
        const std::uint64_t used =
            std::max(device.curve(CurveName::device_used).current, gpu.reserved_bytes);
        gpu.free_bytes = *gpu.total_bytes - std::min(*gpu.total_bytes, used);
    }
    return gpu;
}

/// What a framework's cache hands out of a GPU's memory stands in place of what it took.
void add_tensors(const DeviceTotals& cache, StatusDocument& status) {
    for (StatusDocument::Gpu& gpu : status.gpus) {
        if (gpu.gpu != cache.info.gpu) {
            continue;
        }
        if (!gpu.tensor_bytes) {
            gpu.tensor_bytes = gpu.max_tensor_bytes = 0;
            gpu.allocation_count = gpu.live_count = 0;
        }
        *gpu.tensor_bytes += cache.curve(CurveName::allocated).current;
        *gpu.max_tensor_bytes += cache.curve(CurveName::allocated).peak;
        add_counts(cache, gpu);
    }
}

void add_kind(const DeviceTotals& device, MemoryKind kind, std::uint64_t& now,
              std::uint64_t& most) {
    const trace::KindTotals& totals = device.kinds[static_cast<std::size_t>(kind)];
    now += totals.live_bytes;
    most += totals.peak_bytes;
}

void fill(const trace::ProcessInfo& process, StatusDocument& status) {
    status.memlab_version = process.memlab_version;
    status.host = process.host;
    status.executable = process.executable;
    status.arguments = process.arguments;
    if (!process.ranks.empty()) {
        status.rank = find_rank(process);
    }
}

void fill(const trace::Aggregator& from, StatusDocument& status) {
    const trace::ProcessInfo& process = from.process();
    fill(process, status);
    status.start_wall_ns = process.start_wall_ns;
    status.duration_ns = profiler::monotonic_ns() - process.start_monotonic_ns;
    for (const auto& device : from.devices()) {
        if (device != nullptr && device->info.is_gpu()) {
            status.gpus.push_back(gpu_of(*device));
            add_kind(*device, MemoryKind::pinned, status.pinned_bytes, status.max_pinned_bytes);
            add_kind(*device, MemoryKind::managed, status.managed_bytes, status.max_managed_bytes);
        }
    }
    for (const auto& device : from.devices()) {
        if (device != nullptr && !device->info.is_gpu()) {
            add_tensors(*device, status);
        }
    }
    status.oom_count = from.oom_count();
    for (std::size_t kind = 0; kind < from.step_stats().kind_count(); ++kind) {
        const auto [what, path] = from.step_stats().kind(kind);
        const std::uint64_t steps = from.step_stats().ended(what, path);
        status.step_count = std::max(status.step_count.value_or(0), steps);
    }
    if (from.latest_mark()) {
        status.latest_mark = from.string(from.latest_mark()->name);
    }
    status.at_least =
        std::any_of(from.missed().begin(), from.missed().end(),
                    [](const auto& missed) { return missed.figures == trace::Figures::at_least; });
}

/// Where nothing is recorded: what the pools know.
void fill_from_pools(Session& session, StatusDocument& status) {
    fill(describe_process(false, session.settings().arguments), status);
    const auto count = [](std::int64_t value) {
        return static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0));
    };
    for (Context* const context : session.contexts().all()) {
        const allocator::PoolStats stats = context->pool().stats();
        const auto index = static_cast<std::uint64_t>(context->device());
        const auto known = std::find_if(status.gpus.begin(), status.gpus.end(),
                                        [&](const auto& gpu) { return gpu.gpu == index; });
        StatusDocument::Gpu& gpu = known == status.gpus.end() ? status.gpus.emplace_back() : *known;
        gpu.gpu = index;
        gpu.allocated_bytes += count(stats.allocated_bytes.all.current);
        gpu.max_allocated_bytes += count(stats.allocated_bytes.all.peak);
        gpu.reserved_bytes += count(stats.reserved_bytes.all.current);
        gpu.max_reserved_bytes += count(stats.reserved_bytes.all.peak);
        gpu.cached_bytes +=
            count(stats.reserved_bytes.all.current - stats.active_bytes.all.current);
        status.oom_count += count(stats.num_ooms);
    }
}

StatusDocument::StepAside step_aside_of(const Mover::State& state, std::uint64_t start_ns) {
    StatusDocument::StepAside aside;
    aside.phase = name_of(state.phase);
    if (state.since_ns != 0) {
        aside.since_ns = state.since_ns - std::min(state.since_ns, start_ns);
    }
    aside.away_bytes = state.away_bytes;
    aside.waiting = state.waiting;
    aside.short_of_memory = state.short_of_memory;
    aside.by_driver = state.by_driver;
    aside.lost = state.lost;
    return aside;
}

void add_staying(Session& session, StatusDocument::StepAside& aside) {
    constexpr std::size_t most = 8;
    const std::vector<StayingMemory> staying =
        staying_memory(session, -1, most, profiler::monotonic_ns() + max_wait_for_recorder_ns);
    for (const StayingMemory& each : staying) {
        aside.staying_bytes += each.bytes;
        if (aside.staying.size() < most) {
            aside.staying.push_back({each.kind, each.device, each.bytes, each.count, each.place});
        }
    }
}

StatusDocument::Hold hold_of(std::uint64_t start_ns) {
    const OomHold::State state = oom_hold().state();
    StatusDocument::Hold hold;
    hold.on = oom_hold().seconds() != 0;
    hold.timeout_s = oom_hold().seconds();
    hold.waiting = state.waiting;
    if (state.waiting != 0) {
        hold.since_ns = state.since_ns - std::min(state.since_ns, start_ns);
        hold.requested_bytes = state.requested;
        hold.gpu = static_cast<std::uint64_t>(std::max(state.gpu, 0));
    }
    return hold;
}

}  // namespace

void answer_status(Session& session, Answer* answer) {
    StatusDocument status;
    std::uint64_t start_ns = 0;
    if (profiler::Recorder* const recorder = session.recorder()) {
        bool no_memory = false;
        const bool visited = recorder->with_frozen_aggregate(
            profiler::monotonic_ns() + max_wait_for_recorder_ns,
            [&](const trace::Aggregator& aggregate) {
                try {
                    fill(aggregate, status);
                    start_ns = aggregate.process().start_monotonic_ns;
                } catch (const std::bad_alloc&) {
                    no_memory = true;
                }
            });
        if (no_memory) {
            throw std::bad_alloc();
        }
        if (!visited) {
            answer->problem = recording_is_busy;
            return;
        }
        status.recording = true;
        status.stack_depth = recorder->stack_depth();
    } else {
        fill_from_pools(session, status);
    }
    for (StatusDocument::Gpu& gpu : status.gpus) {
        const std::uint64_t limit = session.limits().limit_for(static_cast<CUdevice>(gpu.gpu));
        if (limit != 0) {
            gpu.limit_bytes = limit;
        }
    }
    status.pid = static_cast<std::uint64_t>(::getpid());
    if (!session.report_path().empty()) {
        status.report = session.report_path();
    }
    if (!session.log_path().empty()) {
        status.log = session.log_path();
    }
    status.pooling = session.pooling();
    status.hold_on_oom = hold_of(start_ns);
    if (session.mover() != nullptr) {
        status.step_aside = step_aside_of(session.mover()->state(), start_ns);
        add_staying(session, status.step_aside);
    }
    answer->document = model::to_json(status);
}

}  // namespace memlab::interpose
