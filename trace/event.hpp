// The event: the record of which a recording has millions. It has its own encoding
// (event_codec.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace memlab::trace {

/// The name of `value` in a list by enumerator; `otherwise` where it is none. `last` is the last
/// one: each has a name.
template <auto last, std::size_t count>
constexpr const char* name_in(const char* const (&names)[count], decltype(last) value,
                              const char* otherwise = "unknown") {
    static_assert(count == static_cast<std::size_t>(last) + 1);
    const auto index = static_cast<std::size_t>(value);
    return index < count ? names[index] : otherwise;
}

/// The function of a Python frame without a file that is no call: in the stack of an allocation of
/// PyTorch's backward, what follows are the Python frames that ran the operator's forward.
inline constexpr std::string_view forward_marker = "[forward]";

/// The kinds of definitions, which records refer to by number.
enum class Definition : std::uint8_t {
    string,
    module,
    python_frame,
    stack,
    context,
    nn_module_stack,
    device,
};

/// What was allocated; the distinctions are CUPTI's (CUpti_ActivityMemoryKind and the pools).
enum class MemoryKind : std::uint8_t {
    device,      ///< cuMemAlloc, cuMemAllocPitch
    managed,     ///< cuMemAllocManaged
    pinned,      ///< cuMemAllocHost, cuMemHostAlloc, cuMemHostRegister: host memory
    array,       ///< cuArrayCreate, cuArray3DCreate, cuMipmappedArrayCreate
    async_pool,  ///< cuMemAllocAsync, cuMemAllocFromPoolAsync: the driver's own pools
    vmm,         ///< cuMemCreate: physical memory; its address is the allocation handle
    ipc_import,  ///< memory of another process or API mapped here; owned elsewhere
    graph,       ///< memory nodes of a CUDA graph
    /// A part of one of the above, as an allocator of the program's handed it out: a tensor in a
    /// segment of PyTorch's cache. Its device is that allocator's (DeviceInfo::allocator).
    suballocation,
};
inline constexpr MemoryKind last_memory_kind = MemoryKind::suballocation;
inline constexpr int memory_kind_count = static_cast<int>(last_memory_kind) + 1;

/// "device", "managed", ...: the names used in every output.
const char* name_of(MemoryKind kind);

/// True for kinds whose bytes are device memory of this process: these are in the curves.
/// False for pinned (host), managed (migrates) and ipc_import (another process holds it).
bool counts_as_device_memory(MemoryKind kind);

/// Who served an allocation.
enum class Origin : std::uint8_t {
    pool,    ///< memlab's pool
    driver,  ///< the real driver call; recorded only
};

/// Names follow PyTorch's snapshot actions.
enum class EventType : std::uint8_t {
    alloc,
    free_requested,  ///< the application freed it
    free_completed,  ///< pool only: the memory is safe to reuse
    segment_alloc,   ///< the pool allocated a range from the driver
    segment_free,    ///< the pool freed a range
    segment_map,
    segment_unmap,
    alloc_retry,  ///< out of memory: the pool releases its cache and retries
    sync,         ///< the pool waited on the host until pending frees were reusable
    mark,
    scope_begin,
    scope_end,
    // Inputs of the pool that a replay needs and cannot derive from its other events.
    empty_cache,  ///< the pool frees unused memory on request; precedes its segment_free
    tick,         ///< the pool's clock moved to `requested` nanoseconds; precedes what it frees
    reclaim,      ///< before growing for `requested` bytes the pool frees unused memory
    label,        ///< the program names the live allocation at `address`
};
const char* name_of(EventType type);

/// One memory event. Fields that do not apply are 0.
/// For origin driver a free_requested is also the completion: no free_completed follows.
///
/// Scopes: `requested` and `size` are the domain; a scope_end ends the innermost scope of its
/// domain and thread. With an `address` the scope is a range of the process, which a scope_end with
/// the same address ends, from any thread. A scope_end with the stream ended_with_thread ends all
/// scopes of its thread.
struct Event {
    EventType type = EventType::alloc;
    MemoryKind kind = MemoryKind::device;
    Origin origin = Origin::driver;
    std::uint32_t device = 0;   ///< DeviceInfo::index
    std::uint32_t context = 0;  ///< ContextInfo::id
    std::uint32_t thread = 0;   ///< kernel thread id
    /// StringDef::id of the function that the program called; of a label: what the allocation
    /// holds, "float32[512, 512]", none where that is not known
    std::uint32_t api = 0;
    std::uint32_t stack = 0;  ///< StackDef::id
    /// StringDef::id: the name of a mark or scope; of an alloc: the program's allocator that cuts
    /// it into suballocations; of a free_requested: the garbage collector that was freeing, none
    /// where the program itself was
    std::uint32_t name = 0;
    std::uint32_t correlation = 0;  ///< CUPTI's number of that call; 0: unknown
    std::uint32_t nn_modules = 0;   ///< NnModuleStackDef::id: whose call allocated; 0: none's
    std::uint64_t time_ns = 0;      ///< never decreases from one event of a log to the next
    std::uint64_t stream = 0;       ///< the value of the call's CUstream argument, if it has one
    std::uint64_t address = 0;    ///< device address, or the handle for kinds that have no address
    std::uint64_t requested = 0;  ///< what the application asked for
    std::uint64_t size = 0;       ///< what serves it: the block, or the segment for segment events

    bool operator==(const Event&) const = default;
};

/// The free_completed of a free_requested that completed immediately.
inline Event completed_at_once(const Event& free_requested) {
    Event completed = free_requested;
    completed.type = EventType::free_completed;
    completed.api = 0;
    completed.stack = 0;
    completed.correlation = 0;
    completed.nn_modules = 0;
    return completed;
}

/// Event::stream of a scope_end: the thread ended.
inline constexpr std::uint64_t ended_with_thread = 1;

}  // namespace memlab::trace
