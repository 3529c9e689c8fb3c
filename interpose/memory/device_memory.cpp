#include "interpose/memory/device_memory.hpp"

#include <string>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/diagnostics.hpp"
#include "interpose/driver/nested_frees.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/driver/sticky_errors.hpp"
#include "interpose/memory/caller_policy.hpp"
#include "interpose/memory/driver_allocation.hpp"
#include "interpose/memory/oom_report.hpp"
#include "interpose/memory/passthrough_sites.hpp"
#include "profiler/cupti/current_call.hpp"
#include "threads/no_cancellation.hpp"

namespace memlab::interpose {
namespace {

using allocator::AllocResult;
using allocator::BackendStatus;
using allocator::FenceTiming;
using allocator::FreeResult;
using trace::Event;
using trace::EventType;
using trace::MemoryKind;
using trace::Origin;

[[gnu::hot]] std::uint32_t call_site(Memory& memory) {
    return memory.recorder() != nullptr ? memory.recorder()->capture_call_site() : 0;
}

[[gnu::hot]] std::uint32_t freeing_collector(Memory& memory) {
    return memory.recorder() != nullptr ? memory.recorder()->freeing_collector() : 0;
}

[[gnu::hot]] void record_event(Memory& memory, EventType type, const LiveAllocation& allocation,
                               std::uint64_t address, std::uint32_t api_id, std::uint32_t stack,
                               CUstream stream, std::uint32_t name = 0) {
    if (memory.recorder() == nullptr) {
        return;
    }
    Event event;
    event.type = type;
    event.kind = allocation.kind;
    event.origin = Origin::driver;
    event.device = allocation.device;
    event.context = allocation.context;
    event.api = api_id;
    event.stack = stack;
    event.name = name;
    event.stream = reinterpret_cast<std::uintptr_t>(stream);
    event.address = address;
    event.requested = allocation.requested;
    event.size = allocation.requested;
    event.correlation = profiler::cupti::current_call().correlation;
    memory.recorder()->record(event);
}

// CUPTI's records of other kinds have no address to compare.
bool has_an_address(MemoryKind kind) {
    return kind == MemoryKind::device || kind == MemoryKind::managed ||
           kind == MemoryKind::pinned || kind == MemoryKind::async_pool;
}

/// The string id of the allocator for which the calling thread allocates, if that tells of its
/// blocks, or whose memory sleeps and is to be mapped again; else 0.
std::uint32_t suballocator_id(Memory& memory, const DriverAllocation& of) {
    const bool physical = of.kind == MemoryKind::vmm;
    if ((physical || of.kind == MemoryKind::device) && memory.serves_recorded_cache()) {
        return memory.segment_of_pytorch(of.kind);
    }
    const bool sleeps = physical && memory.recorder() != nullptr &&
                        memory.suballocators().is_for_sleeping(of.requested);
    return sleeps ? memory.recorder()->string_id(Suballocators::pytorch) : 0;
}

[[gnu::hot]] void record_and_keep(Memory& memory, Api api, const DriverAllocation& allocation,
                                  std::uint64_t address, const Context* context) {
    const std::uint32_t stack = call_site(memory);
    LiveAllocation live{.kind = allocation.kind, .stack = stack, .requested = allocation.requested};
    if (context != nullptr) {
        live.device = static_cast<std::uint32_t>(context->device());
        live.context = context->id();
    }
    if (has_an_address(allocation.kind)) {
        memory.made(address);
        if (memory.contexts().any_ending()) {
            memory.contexts().wait_for_earlier_owner(address, allocation.requested, nullptr);
        }
    }
    const std::uint32_t api_id = memory.api_id(api);
    const std::uint32_t suballocator = suballocator_id(memory, allocation);
    const bool kept = memory.live().add(allocation.handles, address, live, [&] {
        record_event(memory, EventType::alloc, live, address, api_id, stack, allocation.stream,
                     suballocator);
    });
    if (!kept && memory.recorder() != nullptr) {
        memory.recorder()->report_missed(
            "the host was out of memory: an allocation was not recorded", allocation.requested);
    }
}

// The counterpart of probe_driver_in_capture() for a stream-ordered free: frees a small driver
// allocation, which waits for nothing.
CUresult probe_stream_free(const Context& owner, CUstream stream) {
    CUdeviceptr probe = 0;
    {
        const RelaxedCapture relaxed(true);
        const CurrentContext current(owner.handle());
        const CUresult made = call_real(&Driver::cuMemAlloc_v2, &probe, std::size_t{512});
        if (made != CUDA_SUCCESS) {
            return made == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : made;
        }
    }
    const CUresult answer = call_real(&Driver::cuMemFreeAsync, probe, stream);
    if (answer != CUDA_SUCCESS) {
        const RelaxedCapture relaxed(true);
        const CurrentContext current(owner.handle());
        call_real(&Driver::cuMemFree_v2, probe);
    }
    return answer;
}

// Returns a block to its pool; nullopt when it is not (or no longer) a pool's.
[[gnu::hot]] std::optional<CUresult> free_pooled(Memory& memory, Api api, CUdeviceptr address,
                                                 StreamKey stream) {
    Context* owner = memory.segments().find(address);
    if (owner == nullptr) {
        return std::nullopt;
    }
    if (memory.recorder() != nullptr) {
        memory.recorder()->prefetch(EventType::free_requested);
    }
    FenceTiming timing = FenceTiming::now;
    if (memory.captures().capturing()) {
        const CUresult answer = stream == no_stream ? probe_driver_in_capture()
                                                    : probe_stream_free(*owner, to_stream(stream));
        if (answer != CUDA_SUCCESS) {
            return answer;
        }
        timing = FenceTiming::deferred;
    } else if (const CUresult broken = broken_context(); broken != CUDA_SUCCESS) {
        return broken;
    }
    const allocator::Tag tag = make_tag(memory.api_id(api), freeing_collector(memory));
    const FreeResult result = stream == no_stream ? owner->pool().free(address, tag, timing)
                                                  : owner->pool().free_in(stream, address, tag);
    switch (result.kind) {
        case FreeResult::Kind::freed:
            if (timing == FenceTiming::now && stream == no_stream) {
                owner->backend().show_output();
            }
            memory.on_unused();
            // A capture that began meanwhile only delays the fence; the free preceded it.
            return static_cast<CUresult>(
                result.status.kind == BackendStatus::Kind::not_now ? 0 : result.status.code);
        case FreeResult::Kind::refused:
            return static_cast<CUresult>(result.status.code);
        case FreeResult::Kind::invalid:
            return CUDA_ERROR_INVALID_VALUE;
        case FreeResult::Kind::not_ours:
            break;
    }
    return std::nullopt;
}

/// The thread jumped out of a call of memlab, maybe out of its wait for the device.
void after_a_jump(Memory& memory) {
    std::size_t index = 0;
    while (Context* const context = memory.contexts().next(-1, &index)) {
        context->pool().forget_left_wait();
    }
    if (memory.recorder() != nullptr) {
        memory.recorder()->report_missed(
            "a thread left a call of memlab by a jump (siglongjmp out of a signal handler): what "
            "that call did may be missing",
            0);
    }
}

/// Bookkeeping beside a call that must go on where the host is out of memory.
template <class Work>
[[gnu::always_inline]] inline void without_host_memory(const Work& work) noexcept {
    try {
        work();
    } catch (const std::bad_alloc&) {  // it is missing from the recording
    }
}

/// What earlier calls left to do.
[[gnu::always_inline]] inline void catch_up(Memory& memory) noexcept {
    if (nested_frees.any()) {
        without_host_memory([&] { serve_nested_frees(memory); });
    }
    if (left_by_a_jump) [[unlikely]] {
        left_by_a_jump = false;
        without_host_memory([&] { after_a_jump(memory); });
    }
}

void end_suballocations(Memory& memory, CUdeviceptr address) noexcept {
    without_host_memory([&] { memory.suballocators().memory_freed(*memory.recorder(), address); });
}

[[gnu::hot]] CUresult free_memory(Memory& memory, Api api, CUdeviceptr address, StreamKey stream,
                                  DriverFree real_free) {
    catch_up(memory);
    // PyTorch's lock is held here, so that the memory is not divided again before its segment's end
    // is recorded. Other allocators may hold none: theirs ends first, even if the free should fail.
    const bool cut = memory.suballocators().any();
    const bool ends_first = cut && memory.suballocators().any_others();
    if (ends_first) [[unlikely]] {
        end_suballocations(memory, address);
    }
    std::optional<CUresult> result;
    if (address != 0) {
        result = free_pooled(memory, api, address, stream);
    }
    if (!result) {
        result = free_from_driver(memory, api, HandleClass::memory, address, real_free);
    }
    if (cut && !ends_first && *result == CUDA_SUCCESS) {
        end_suballocations(memory, address);
    }
    return *result;
}

/// Whether plain CUDA would allocate here, while a stream captures. Then the pool serves it, as
/// always: a graph's copies can be moved between memory of one kind only, mapped or cuMemAlloc's.
[[gnu::cold]] bool may_allocate_in_capture(Memory& memory) {
    if (!memory.captures().capturing_strictly()) {
        return true;
    }
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (call_real(&Driver::cuThreadExchangeStreamCaptureMode, &mode) != CUDA_SUCCESS) {
        return false;
    }
    const bool relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    call_real(&Driver::cuThreadExchangeStreamCaptureMode, &mode);
    return relaxed;
}

/// Whether the handles that its caller makes of this allocation have to be the driver's own.
[[gnu::hot]] bool must_be_plain(Memory& memory) {
    if (!memory.settings().detect_ipc) {
        return false;
    }
    switch (calling_allocator()) {
        case Allocator::pytorch:
            return memory.settings().pytorch_caches && !memory.settings().yield;
        case Allocator::exporting:
            memory.report_exporting_code();
            return true;
        case Allocator::other:
            return false;
    }
    return false;
}

}  // namespace

[[gnu::hot]] CUresult allocate_device(Memory& memory, Api api, CUdeviceptr* address,
                                      std::size_t bytes, FunctionRef<CUresult()> real) {
    const auto from_driver = [&] {
        DriverAllocation allocation;
        allocation.requested = bytes;
        return allocate_from_driver(memory, api, allocation, real, [&] { return *address; });
    };
    if (address == nullptr || bytes == 0 || !memory.pooling()) {
        return from_driver();
    }
    catch_up(memory);
    const Passthrough& rules = memory.settings().passthrough;
    if ((!rules.empty() && passes_through(rules, bytes)) || must_be_plain(memory)) {
        return from_driver();
    }
    if (memory.recorder() != nullptr) {
        memory.recorder()->prefetch(EventType::alloc);
    }
    const std::uint32_t stack = call_site(memory);
    // Where a capture may forbid it the driver decides, so that errors are those of plain CUDA.
    const bool capturing = memory.captures().capturing();
    Context* context =
        capturing && !may_allocate_in_capture(memory) ? nullptr : memory.contexts().current();
    if (context == nullptr || broken_context() != CUDA_SUCCESS) {
        return from_driver();
    }
    const allocator::Tag tag = make_tag(memory.api_id(api), stack);
    AllocResult result = context->pool().allocate(bytes, tag);
    if (result.status.kind == BackendStatus::Kind::out_of_memory &&
        context->backend().fences().lacked_memory()) [[unlikely]] {
        context->pool().release_cached(true);
        result = context->pool().allocate(bytes, tag);
    }
    if (capturing && result.status.kind == BackendStatus::Kind::out_of_memory) {
        return from_driver();  // which waits for what was freed in the capture
    }
    for (int i = 0; i < most_retries && result.status.kind == BackendStatus::Kind::out_of_memory &&
                    memory.contexts().release_cached_for(context->device(), bytes, context) != 0;
         ++i) {
        result = context->pool().allocate(bytes, tag);
    }
    if (result.status.kind == BackendStatus::Kind::out_of_memory &&
        memory.others_gave_back(context->device(), bytes)) {
        result = context->pool().allocate(bytes, tag);
    }
    without_host_memory([&] {
        memory.on_memory_growth();
        sample_device(memory, context->device());
    });
    if (result.status.ok()) {
        if (memory.settings().fill.pooled) [[unlikely]] {
            const CUresult failed =
                context->backend().fill(result.block.address, result.block.size);
            if (failed != CUDA_SUCCESS) {
                context->pool().free(result.block.address, tag, FenceTiming::now_without_wait);
                *address = 0;
                return failed;
            }
        }
        *address = result.block.address;
        return CUDA_SUCCESS;
    }
    // The device is fine but the pool's bookkeeping failed: no host memory, or an unusable segment
    // address. The driver serves the allocation.
    if (result.status.kind == BackendStatus::Kind::error &&
        (result.status.code == allocator::out_of_memory_code ||
         result.status.code == allocator::unusable_segment_code)) {
        memory.disable_pooling("the pool's bookkeeping failed");
        return from_driver();
    }
    *address = 0;  // as the driver does
    const auto error = static_cast<CUresult>(result.status.code);
    if (result.status.kind == BackendStatus::Kind::out_of_memory) {
        report_oom(memory, api, stack, context, MemoryKind::device, bytes,
                   result.largest_free_block, error);
    }
    return error;
}

CUresult free_nested(Memory* memory, Api api, CUdeviceptr address, DriverFree real_free) {
    Context* owner = memory != nullptr ? memory->segments().find(address) : nullptr;
    if (owner == nullptr) {
        return real_free();
    }
    bool busy = false;
    const std::optional<allocator::BlockInfo> block = owner->pool().try_find(address, &busy);
    if (!busy && (!block || block->address != address)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (nested_frees.note(api, address)) {
        case NestedFrees::Result::duplicate:
            return CUDA_ERROR_INVALID_VALUE;
        case NestedFrees::Result::noted:
        case NestedFrees::Result::full:  // the block stays allocated until the process ends
            break;
    }
    return CUDA_SUCCESS;
}

// The host does not wait here: this runs in another call than the free.
void serve_nested_frees(Memory& memory) {
    const auto all = [](CUdeviceptr) { return true; };
    nested_frees.drain(all, [&](Api api, CUdeviceptr address) {
        if (Context* owner = memory.segments().find(address)) {
            owner->pool().free(address, make_tag(memory.api_id(api), 0),
                               memory.captures().capturing() ? FenceTiming::deferred
                                                             : FenceTiming::now_without_wait);
            memory.on_unused();
        }
    });
    if (const std::uint32_t lost = nested_frees.take_lost();
        lost != 0 && memory.recorder() != nullptr) {
        memory.recorder()->report_missed(
            "more than " + std::to_string(NestedFrees::capacity) +
                " blocks were freed inside one of memlab's own calls (by a profiler's callback or "
                "a signal handler): the others stay allocated",
            0, lost);
    }
}

[[gnu::hot]] CUresult free_device(Memory& memory, Api api, CUdeviceptr address,
                                  DriverFree real_free) {
    return free_memory(memory, api, address, no_stream, real_free);
}

[[gnu::hot]] CUresult free_device_async(Memory& memory, Api api, CUdeviceptr address,
                                        StreamKey stream, DriverFree real_free) {
    return free_memory(memory, api, address, stream, real_free);
}

[[gnu::hot]] CUresult allocate_from_driver(Memory& memory, Api api,
                                           const DriverAllocation& allocation,
                                           FunctionRef<CUresult()> real,
                                           FunctionRef<std::uint64_t()> address) {
    const threads::NoCancellation no_cancellation;
    const Memory::Changing changing(memory);
    if (memory.recorder() != nullptr) {
        memory.recorder()->prefetch(EventType::alloc);  // overlaps with the driver call
    }
    const auto within_limit = [&] {
        return allocate_within_limit(memory, allocation, real, address);
    };
    CUresult result = within_limit();
    Context* context = nullptr;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        context = memory.contexts().current();
        // Host memory is not what the pools hold.
        const bool of_device =
            context != nullptr && trace::counts_as_device_memory(allocation.kind);
        for (int i = 0; i < most_retries && result == CUDA_ERROR_OUT_OF_MEMORY && of_device &&
                        memory.contexts().release_cached_for(
                            context->device(), least_from_device(allocation), nullptr) != 0;
             ++i) {
            result = within_limit();
        }
        if (of_device && result == CUDA_ERROR_OUT_OF_MEMORY &&
            memory.others_gave_back(context->device(), least_from_device(allocation))) {
            result = within_limit();
        }
    }
    if (result == CUDA_SUCCESS) {
        without_host_memory([&] {
            const std::uint64_t allocated = address();
            if (allocated != 0) {
                context = memory.contexts().current();
                record_and_keep(memory, api, allocation, allocated, context);
                if (memory.settings().fill.driver) [[unlikely]] {
                    fill_from_driver(memory, allocation, allocated, context);
                }
                if (context != nullptr && trace::counts_as_device_memory(allocation.kind)) {
                    sample_device(memory, context->device());
                }
            }
        });
    } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        report_oom(memory, api, call_site(memory), context, allocation.kind, allocation.requested,
                   0, result);
    }
    return result;
}

void record_driver_allocation(Memory& memory, Api api, const DriverAllocation& allocation,
                              std::uint64_t address) {
    record_and_keep(memory, api, allocation, address, memory.contexts().current());
}

[[gnu::hot]] CUresult free_from_driver(Memory& memory, Api api, HandleClass handles,
                                       std::uint64_t address, DriverFree real_free) {
    const threads::NoCancellation no_cancellation;
    const Memory::Changing changing(memory);
    const std::optional<LiveAllocation> known = memory.live().begin_free(handles, address);
    if (known && memory.recorder() != nullptr) {
        memory.recorder()->prefetch(EventType::free_requested, profiler::Freed::later);
    }
    const CUresult result = real_free();
    if (known) {
        const std::uint32_t api_id = memory.api_id(api);
        const std::uint32_t collector = freeing_collector(memory);
        memory.live().finish_free(handles, address, result == CUDA_SUCCESS, [&] {
            record_event(memory, EventType::free_requested, *known, address, api_id, 0, nullptr,
                         collector);
        });
    }
    return result;
}

void record_driver_free(Memory& memory, Api api, HandleClass handles, std::uint64_t address) {
    free_from_driver(memory, api, handles, address, [] { return CUDA_SUCCESS; });
}

std::optional<PooledBlock> find_pooled(Memory& memory, CUdeviceptr address, bool nested) {
    Context* owner = memory.segments().find(address);
    if (owner == nullptr) {
        return std::nullopt;
    }
    bool busy = false;
    PooledBlock found{
        owner, nested ? owner->pool().try_find(address, &busy) : owner->pool().find(address)};
    if (busy && !nested_frees.has(address)) {
        return std::nullopt;
    }
    // Bytes past the requested size are rounding; plain CUDA has no allocation there.
    if (found.block && (address - found.block->address >= found.block->requested ||
                        nested_frees.has(found.block->address))) {
        found.block.reset();
    }
    return found;
}

bool exports_exactly(const PooledBlock& pooled) {
    return pooled.block->address == pooled.block->segment &&
           !pooled.context->backend().pages().owns(pooled.block->address);
}

}  // namespace memlab::interpose
