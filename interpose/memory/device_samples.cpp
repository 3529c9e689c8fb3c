// Samples of the memory in use on a device.
#include <array>
#include <atomic>

#include "interpose/driver/async_pools.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/memory/device_memory.hpp"
#include "profiler/clock.hpp"
#include "profiler/sample_schedule.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {
namespace {

constexpr int max_sampled_devices = trace::DeviceInfo::max_gpus;

using UnrecordedCount = std::atomic<std::uint64_t>;

/// Calls of one kind since the latest sample: as trace::LedgerEntry has them.
struct Unrecorded {
    UnrecordedCount skipped{0};
    UnrecordedCount skipped_returns{0};
    UnrecordedCount unchanged{0};
};

struct SampledDevice {
    profiler::SampleSchedule schedule;
    profiler::IdleSchedule after_waits;
    std::atomic<std::uint64_t> submissions{0};  ///< when the latest sample was recorded
};

struct UnrecordedCalls {
    std::atomic<bool> any{false};
    std::array<Unrecorded, static_cast<std::size_t>(trace::ledger_kind_count)> kinds;
};

UnrecordedCalls& unrecorded(CUdevice device) {
    static std::array<UnrecordedCalls, max_sampled_devices> devices;
    return devices[static_cast<std::size_t>(device)];
}

SampledDevice& sampled(CUdevice device) {
    static std::array<SampledDevice, max_sampled_devices> devices;
    return devices[static_cast<std::size_t>(device)];
}

bool is_sampled(const Memory& memory, CUdevice device) {
    return memory.has_recorder() && device >= 0 && device < max_sampled_devices;
}

std::uint64_t take_count(UnrecordedCount& count) {
    return count.exchange(0, std::memory_order_relaxed);
}

}  // namespace

std::optional<UsedMemory> used_memory(Memory& memory) {
    const CaptureGate::Shared gate(memory.captures());
    std::size_t free = 0;
    std::size_t total = 0;
    if (gate.capturing() || call_real(&Driver::cuMemGetInfo_v2, &free, &total) != CUDA_SUCCESS ||
        free > total) {
        return std::nullopt;
    }
    return UsedMemory{total - free, total};
}

void count_unrecorded(CUdevice device, trace::LedgerKind kind, CallWas was) {
    UnrecordedCalls& of = unrecorded(device);
    Unrecorded& counts = of.kinds[static_cast<std::size_t>(kind)];
    const auto add = [](UnrecordedCount& count) { count.fetch_add(1, std::memory_order_relaxed); };
    if (was == CallWas::without_change) {
        add(counts.unchanged);
    } else {
        if (was == CallWas::skipped_return) {
            add(counts.skipped_returns);
        }
        add(counts.skipped);
    }
    of.any.store(true, std::memory_order_release);
}

void record_unrecorded(Memory& memory, CUdevice device) {
    if (!is_sampled(memory, device) || !unrecorded(device).any.load(std::memory_order_relaxed) ||
        !unrecorded(device).any.exchange(false, std::memory_order_acquire)) {
        return;
    }
    for (int kind = 0; kind < trace::ledger_kind_count; ++kind) {
        Unrecorded& counts = unrecorded(device).kinds[static_cast<std::size_t>(kind)];
        trace::LedgerEntry entry;
        entry.device = static_cast<std::uint32_t>(device);
        entry.kind = static_cast<trace::LedgerKind>(kind);
        entry.skipped_returns = take_count(counts.skipped_returns);
        entry.skipped = take_count(counts.skipped);
        entry.unchanged = take_count(counts.unchanged);
        if (entry.skipped != 0 || entry.unchanged != 0) {
            memory.recorder()->record(entry);
        }
    }
}

void record_sample(Memory& memory, CUdevice device, const UsedMemory& used) {
    if (!is_sampled(memory, device)) {
        return;
    }
    record_unrecorded(memory, device);
    const std::uint64_t submissions = work_clock.ticks();
    trace::DeviceSample sample;
    sample.device = static_cast<std::uint32_t>(device);
    sample.used = used.used;
    sample.total = used.total;
    sample.worked =
        sampled(device).submissions.exchange(submissions, std::memory_order_relaxed) != submissions;
    sample.pools = memory.settings().ledger != LedgerUse::off ? reserved_by_pools(device) : 0;
    memory.recorder()->record(sample);
}

[[gnu::hot]] void sample_device(Memory& memory, CUdevice device) {
    if (!is_sampled(memory, device)) {
        return;
    }
    profiler::SampleSchedule& schedule = sampled(device).schedule;
    if (!schedule.may_be_due(__builtin_ia32_rdtsc())) {
        return;
    }
    const std::uint64_t now = profiler::monotonic_ns();
    if (!schedule.claim(now)) {
        return;
    }
    if (const std::optional<UsedMemory> used = used_memory(memory)) {
        record_sample(memory, device, *used);
        schedule.finish(now, profiler::monotonic_ns());
    }
}

void sample_after_wait(Memory& memory, CUdevice device) {
    if (!is_sampled(memory, device)) {
        return;
    }
    profiler::IdleSchedule& schedule = sampled(device).after_waits;
    const std::uint64_t now = profiler::monotonic_ns();
    if (!schedule.claim(now)) {
        return;
    }
    if (const std::optional<UsedMemory> used = used_memory(memory)) {
        schedule.finish(now, used->used);
        record_sample(memory, device, *used);
    }
}

}  // namespace memlab::interpose
