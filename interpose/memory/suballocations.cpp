#include "interpose/memory/suballocations.hpp"

#include <optional>
#include <vector>

#include "interpose/control/oom_hold.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/oom_report.hpp"
#include "interpose/memory/vmm_allocations.hpp"
#include "threads/no_cancellation.hpp"

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

/// The context of a block of PyTorch's; the driver is asked only where there are several.
std::uint32_t context_of(Memory& memory, std::uint32_t device) {
    const std::uint32_t of_all = memory.suballocators().context_of_all(device);
    return of_all != 0 ? of_all : current_context(memory, Suballocators::gpu_of(device));
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
    const DriverRange range = find_driver_range(memory, address);
    return {range.begin, range.bytes, false};
}

/// The recorder, once the allocator is described; null: nothing is to be recorded.
[[gnu::hot]] profiler::Recorder* recorder_for(Memory& memory, std::uint32_t device) {
    profiler::Recorder* const recorder = memory.recorder();
    const auto describe = [&](trace::DeviceInfo& info) {
        const int gpu = Suballocators::gpu_of(device);
        if (memory.contexts().all(gpu).empty()) {
            return false;
        }
        info = memory.contexts().device_info(gpu);
        return true;
    };
    return recorder != nullptr && memory.suballocators().is_described(*recorder, device, describe)
               ? recorder
               : nullptr;
}

/// The GPU whose memory that is, also while it is away; -1: none.
int gpu_at(Memory& memory, std::uint64_t address) {
    const RelaxedCapture relaxed(memory.captures().capturing());
    CUmemorytype type{};
    int gpu = -1;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void* values[] = {&type, &gpu};
    const CUresult result = call_real(&Driver::cuPointerGetAttributes, 2U,
                                      static_cast<CUpointer_attribute*>(attributes),
                                      static_cast<void**>(values), CUdeviceptr{address});
    if (result == CUDA_SUCCESS && type != CUmemorytype{}) {  // the driver knows the address
        return type == CU_MEMORYTYPE_DEVICE && Suballocators::is_gpu(gpu) ? gpu : -1;
    }
    if (const Context* const pooled = memory.segments().find(address)) {
        return pooled->device();
    }
    const VmmAllocations::Range mapping = vmm_allocations().mapping_at(address);
    const std::optional<LiveAllocation> live =
        mapping.bytes != 0 ? memory.live().find(HandleClass::vmm_allocation, mapping.allocation)
                           : find_driver_range(memory, address).live;
    return live && trace::counts_as_device_memory(live->kind) ? static_cast<int>(live->device) : -1;
}

/// The string ids of an allocator's two functions.
struct CallIds {
    CallIds(profiler::Recorder& recorder, const char* allocate, const char* deallocate)
        : malloc(recorder.string_id(allocate)), free(recorder.string_id(deallocate)) {}
    std::uint32_t malloc;
    std::uint32_t free;
};

// A process has one recording.
[[gnu::hot]] const CallIds& pytorchs_calls(profiler::Recorder& recorder) {
    static const CallIds ids(recorder, "CUDACachingAllocator::malloc",
                             "CUDACachingAllocator::free");
    return ids;
}
const CallIds& own_calls(profiler::Recorder& recorder) {
    static const CallIds ids(recorder, "memlab_suballoc", "memlab_subfree");
    return ids;
}

/// What other allocators cut from the block ends with it, and before it.
[[gnu::always_inline]] inline void record_free(Memory& memory, profiler::Recorder& recorder,
                                               const profiler::Suballocation& block) {
    if (memory.suballocators().any_inner()) [[unlikely]] {
        memory.suballocators().block_freed(recorder, block.device, block.address);
    }
    const std::uint32_t collector = recorder.freeing_collector();
    if (collector == 0) [[likely]] {
        recorder.record_freed(block);
        return;
    }
    trace::Event free = block.event(EventType::free_requested);
    free.name = collector;
    recorder.record_freed(free);
}

/// A block of PyTorch's in a segment that may not be known.
[[gnu::noinline]] void record_in_new_segment(Memory& memory, profiler::Recorder& recorder,
                                             const profiler::Suballocation& block,
                                             std::uint64_t reserved) {
    const threads::NoCancellation no_cancellation;
    trace::Event alloc = block.event(EventType::alloc);
    alloc.context = current_context(memory, Suballocators::gpu_of(block.device));
    memory.suballocators().allocated(recorder, alloc, reserved,
                                     [&](std::uint64_t at) { return find_range(memory, at); });
}

}  // namespace

[[gnu::hot]] profiler::CallSite record_suballocation(Memory& memory, int gpu, std::uint64_t address,
                                                     std::uint64_t bytes, std::uint64_t reserved,
                                                     const profiler::CallOrigin& origin) {
    if (!Suballocators::is_gpu(gpu)) {
        return {};
    }
    const std::uint32_t device = Suballocators::pytorch_on(gpu);
    profiler::Recorder* const recorder = recorder_for(memory, device);
    if (recorder == nullptr) {
        return {};
    }
    recorder->prefetch_suballocation();
    const profiler::CallSite site = recorder->capture_tensor_site(origin);
    const profiler::Suballocation block{.device = device,
                                        .context = context_of(memory, device),
                                        .api = pytorchs_calls(*recorder).malloc,
                                        .stack = site.stack,
                                        .address = address,
                                        .bytes = bytes,
                                        .nn_modules = site.nn_modules};
    // PyTorch's own lock is held: no segment of its comes or goes meanwhile.
    if (memory.suballocators().knows_all(device, reserved)) [[likely]] {
        recorder->record_allocated(block);
    } else {
        record_in_new_segment(memory, *recorder, block, reserved);
    }
    return site;
}

[[gnu::hot]] void record_suballocation_freed(Memory& memory, int gpu, std::uint64_t address,
                                             std::uint64_t bytes) {
    if (!Suballocators::is_gpu(gpu)) {
        return;
    }
    const std::uint32_t device = Suballocators::pytorch_on(gpu);
    profiler::Recorder* const recorder = recorder_for(memory, device);
    if (recorder == nullptr) {
        return;
    }
    recorder->prefetch_suballocation();
    record_free(memory, *recorder,
                {.device = device,
                 .context = context_of(memory, device),
                 .api = pytorchs_calls(*recorder).free,
                 .stack = 0,
                 .address = address,
                 .bytes = bytes});
}

void record_suballocator_oom(Memory& memory, int gpu, std::uint64_t bytes,
                             const profiler::CallOrigin& origin) {
    const threads::NoCancellation no_cancellation;
    profiler::Recorder* const recorder =
        Suballocators::is_gpu(gpu) ? recorder_for(memory, Suballocators::pytorch_on(gpu)) : nullptr;
    if (recorder == nullptr) {
        oom_hold().wait(gpu, bytes);
        return;
    }
    trace::OomEvent oom;
    oom.device = Suballocators::pytorch_on(gpu);
    oom.context = current_context(memory, gpu);
    oom.api = pytorchs_calls(*recorder).malloc;
    oom.stack = recorder->capture_call_site(origin);
    oom.kind = trace::MemoryKind::suballocation;
    oom.requested = bytes;
    report_suballocator_oom(memory, oom, gpu, Suballocators::pytorch);
}

bool is_memory_of(Memory& memory, int gpu, std::uint64_t address, std::uint64_t bytes) {
    const threads::NoCancellation no_cancellation;
    const int owner = gpu_at(memory, address);
    if (owner >= 0 && owner != gpu) {
        return false;
    }
    const std::uint64_t end = address + bytes;
    for (std::uint64_t at = address; at < end;) {
        const SegmentRange range = find_range(memory, at);
        if (range.bytes == 0 || at - range.begin >= range.bytes) {
            return at == address && owner == gpu;  // memory whose extent the driver does not tell
        }
        at = range.begin + range.bytes;
    }
    return true;
}

bool record_suballocation_by(Memory& memory, std::string_view allocator, std::uint64_t address,
                             std::uint64_t bytes) {
    const threads::NoCancellation no_cancellation;
    Suballocators& allocators = memory.suballocators();
    if (memory.recorder() == nullptr || bytes == 0 || allocator == Suballocators::pytorch) {
        return false;
    }
    std::optional<std::uint32_t> number = allocators.find(allocator);
    std::uint32_t device = number ? allocators.device_at(*number, address) : 0;
    if (device == 0) {
        const int gpu = gpu_at(memory, address);
        number = gpu < 0 ? std::nullopt : allocators.find_or_add(allocator);
        if (gpu >= 0 && !number) {
            memory.recorder()->report_missed(
                "the program has more allocators with names than are kept apart: the blocks of "
                "further ones were not recorded",
                bytes);
        }
        if (!number) {
            return false;
        }
        device = trace::DeviceInfo::suballocator_index(*number, static_cast<std::uint32_t>(gpu));
    }
    profiler::Recorder* const recorder = recorder_for(memory, device);
    if (recorder == nullptr) {
        return false;
    }
    const profiler::CallSite site = recorder->capture_tensor_site();
    const profiler::Suballocation block{
        .device = device,
        .context = current_context(memory, Suballocators::gpu_of(device)),
        .api = own_calls(*recorder).malloc,
        .stack = site.stack,
        .address = address,
        .bytes = bytes,
        .nn_modules = site.nn_modules};
    allocators.allocated(*recorder, block.event(EventType::alloc),
                         [&](std::uint64_t at) { return find_range(memory, at); });
    return true;
}

bool record_suballocation_freed_by(Memory& memory, std::string_view allocator,
                                   std::uint64_t address) {
    const threads::NoCancellation no_cancellation;
    profiler::Recorder* const recorder = memory.recorder();
    const std::optional<std::uint32_t> number =
        recorder == nullptr ? std::nullopt : memory.suballocators().find(allocator);
    const std::uint32_t device = number ? memory.suballocators().device_at(*number, address) : 0;
    if (device == 0) {
        return false;
    }
    record_free(memory, *recorder,
                {.device = device,
                 .context = current_context(memory, Suballocators::gpu_of(device)),
                 .api = own_calls(*recorder).free,
                 .stack = 0,
                 .address = address,
                 .bytes = 0});
    return true;
}

void record_suballocation_resized(Memory& memory, std::uint64_t address, std::uint64_t bytes) {
    const threads::NoCancellation no_cancellation;
    profiler::Recorder* const recorder = memory.recorder();
    const std::string allocator =
        recorder == nullptr ? "" : memory.suballocators().owner_of(*recorder, address);
    if (!allocator.empty() && record_suballocation_freed_by(memory, allocator, address) &&
        bytes != 0) {
        record_suballocation_by(memory, allocator, address, bytes);
    }
}

void record_all_suballocations_freed_by(Memory& memory, std::string_view allocator) {
    const threads::NoCancellation no_cancellation;
    const std::optional<std::uint32_t> number =
        memory.recorder() == nullptr ? std::nullopt : memory.suballocators().find(allocator);
    if (number) {
        memory.suballocators().all_freed(*memory.recorder(), *number);
    }
}

}  // namespace memlab::interpose
