#include "interpose/memory/suballocations.hpp"

#include <optional>
#include <vector>

#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/oom_report.hpp"
#include "interpose/memory/vmm_allocations.hpp"
#include "trace/no_cancellation.hpp"

namespace memlab::interpose {
namespace {

using trace::EventType;

/// The context of new memory on this GPU: the calling thread's, or any there.
std::uint32_t current_context(Memory& memory, int gpu) {
    const Context* context = memory.contexts().current();
    if (context == nullptr || context->device() != gpu) {
        const std::vector<Context*> there = memory.contexts().all(gpu);
        context = there.empty() ? nullptr : there.front();
    }
    return context == nullptr ? 0 : context->id();
}

/// The context of a block; the driver is asked only where there are several.
std::uint32_t context_of(Memory& memory, int gpu) {
    const std::uint32_t of_all = memory.suballocators().context_of_all(gpu);
    return of_all != 0 ? of_all : current_context(memory, gpu);
}

/// A block of memlab's pool, a mapping, or an allocation of the driver's.
SegmentRange find_range(Memory& memory, std::uint64_t address) {
    if (const std::optional<PooledBlock> pooled = find_pooled(memory, address)) {
        return pooled->block ? SegmentRange{pooled->block->address, pooled->block->requested, false}
                             : SegmentRange{};
    }
    const VmmAllocations::Range mapping = vmm_allocations().mapping_at(address);
    if (mapping.bytes != 0) {
        return {mapping.begin, mapping.bytes, true};
    }
    const RelaxedCapture relaxed(memory.captures().capturing());
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    if (call_real(&Driver::cuMemGetAddressRange_v2, &base, &bytes, CUdeviceptr{address}) !=
        CUDA_SUCCESS) {
        return {};
    }
    const std::optional<LiveAllocation> live = memory.live().find(HandleClass::memory, base);
    return {base, live ? live->requested : bytes, false};
}

/// The recorder, once the allocator on this GPU is described; null: nothing is to be recorded.
profiler::Recorder* recorder_for(Memory& memory, int gpu) {
    profiler::Recorder* const recorder = memory.recorder();
    const auto describe = [&](trace::DeviceInfo& info) {
        if (memory.contexts().all(gpu).empty()) {
            return false;
        }
        info = memory.contexts().device_info(gpu);
        return true;
    };
    return recorder != nullptr && memory.suballocators().is_described(*recorder, gpu, describe)
               ? recorder
               : nullptr;
}

// A process has one recording.
std::uint32_t malloc_id(profiler::Recorder& recorder) {
    static const std::uint32_t id = recorder.string_id("CUDACachingAllocator::malloc");
    return id;
}
std::uint32_t free_id(profiler::Recorder& recorder) {
    static const std::uint32_t id = recorder.string_id("CUDACachingAllocator::free");
    return id;
}

}  // namespace

[[gnu::hot]] void record_suballocation(Memory& memory, int gpu, std::uint64_t address,
                                       std::uint64_t bytes, std::uint64_t reserved) {
    profiler::Recorder* const recorder = recorder_for(memory, gpu);
    if (recorder == nullptr) {
        return;
    }
    recorder->prefetch(EventType::alloc);
    Suballocators& allocators = memory.suballocators();
    trace::Event alloc =
        Suballocators::make_event(EventType::alloc, gpu, context_of(memory, gpu), address, bytes);
    alloc.stack = recorder->capture_call_site();
    alloc.api = malloc_id(*recorder);
    // The allocator's own lock is held: no segment of its comes or goes meanwhile.
    if (allocators.knows_all(gpu, reserved)) [[likely]] {
        recorder->record(alloc);
        return;
    }
    const trace::NoCancellation no_cancellation;
    alloc.context = current_context(memory, gpu);
    allocators.allocated(*recorder, gpu, alloc, reserved,
                         [&](std::uint64_t at) { return find_range(memory, at); });
}

[[gnu::hot]] void record_suballocation_freed(Memory& memory, int gpu, std::uint64_t address,
                                             std::uint64_t bytes) {
    profiler::Recorder* const recorder = recorder_for(memory, gpu);
    if (recorder == nullptr) {
        return;
    }
    recorder->prefetch(EventType::free_requested);
    trace::Event free = Suballocators::make_event(EventType::free_requested, gpu,
                                                  context_of(memory, gpu), address, bytes);
    free.api = free_id(*recorder);
    recorder->record_freed(free);
}

void record_suballocator_oom(Memory& memory, int gpu, std::uint64_t bytes) {
    const trace::NoCancellation no_cancellation;
    profiler::Recorder* const recorder = recorder_for(memory, gpu);
    if (recorder == nullptr) {
        return;
    }
    trace::OomEvent oom;
    oom.device = Suballocators::device_index(gpu);
    oom.context = current_context(memory, gpu);
    oom.api = malloc_id(*recorder);
    oom.stack = recorder->capture_call_site();
    oom.kind = trace::MemoryKind::suballocation;
    oom.requested = bytes;
    report_suballocator_oom(memory, oom, gpu, Suballocators::pytorch);
}

}  // namespace memlab::interpose
