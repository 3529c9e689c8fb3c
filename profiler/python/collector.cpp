#include "profiler/python/collector.hpp"

#include <algorithm>
#include <iterator>

#include "profiler/python/objects.hpp"
#include "profiler/unwind/stack_memory.hpp"

namespace memlab::profiler::python {
namespace {

// struct _gc_runtime_state.
struct StateLayout {
    int from_minor;  ///< the first version that has it
    std::size_t enabled;
    std::size_t generations;
    std::size_t generation0;  ///< points to the first of the generations
    std::size_t collecting;
    std::size_t garbage;
    std::size_t callbacks;
    std::size_t bytes;
};
// Patch releases of 3.13 since some have no padding before the generations.
constexpr std::size_t padding = 4;
constexpr StateLayout state_layouts[] = {
    {.from_minor = 15,
     .enabled = 0,
     .generations = 8,
     .generation0 = 168,
     .collecting = 112,
     .garbage = 128,
     .callbacks = 136,
     .bytes = 176},
    // That of 3.14's last patch releases; the earlier ones' collector works in steps, and is not
    // known.
    {.from_minor = 14,
     .enabled = 12,
     .generations = 24,
     .generation0 = 256,
     .collecting = 192,
     .garbage = 200,
     .callbacks = 208,
     .bytes = 264},
    {.from_minor = 0,
     .enabled = 12,
     .generations = 24,
     .generation0 = 96,
     .collecting = 200,
     .garbage = 208,
     .callbacks = 216,
     .bytes = 240},
};
// Before, the list of callbacks is made when the module gc is imported.
constexpr int callbacks_from_minor = 10;
// It is among the first members of the interpreter's state.
constexpr std::size_t max_offset = std::size_t{64} << 10;

// PyGC_Head: before each object that the collector knows. Both words have flags in the lowest bits.
constexpr std::size_t head_previous = 8;
constexpr std::size_t head_bytes = 16;
constexpr std::uintptr_t head_flags = 3;

// Searched for the list's head: the frames between the collector and a destructor's call.
constexpr std::size_t max_searched = std::size_t{256} << 10;

bool is_flag(std::int32_t value) {
    return value == 0 || value == 1;
}

/// Whether `address` may be that of a PyGC_Head of an object.
bool may_be_head(std::uintptr_t address) {
    return address % head_bytes == 0 && address >= unwind::page_size && address >> 47 == 0;
}

/// Whether the head of a list of objects is at `at`, a place on the stack with these words. (That
/// of an empty list points to itself, and whatever lies behind it may look like an object.)
bool is_list_head(std::uintptr_t at, std::uintptr_t first, std::uintptr_t last) {
    return first != at && (word_at(first + head_previous) & ~head_flags) == at &&
           (word_at(last) & ~head_flags) == at &&
           is_collected_object(first + head_bytes, ObjectClass::any);
}

/// Where the thread's latest head was: most likely that of the next object, too.
__attribute__((tls_model("initial-exec"))) constinit thread_local std::uintptr_t latest_head = 0;

}  // namespace

bool Collector::find(int minor, const void* state, const void* end, const void* list) {
    const StateLayout& layout =
        *std::find_if(std::begin(state_layouts), std::end(state_layouts) - 1,
                      [minor](const StateLayout& each) { return minor >= each.from_minor; });
    const auto* const begin = static_cast<const char*>(state);
    const auto bytes = static_cast<std::size_t>(static_cast<const char*>(end) - begin);
    if (bytes < layout.bytes) {
        return false;
    }
    const auto is_list = [list](std::uintptr_t object) {
        return object != 0 &&
               word_at(object + object_type) == reinterpret_cast<std::uintptr_t>(list);
    };
    for (std::size_t at = 0; at <= std::min(bytes - layout.bytes, max_offset);
         at += sizeof(void*)) {
        const char* const gc = begin + at;
        const std::uintptr_t first =
            read<std::uintptr_t>(gc, layout.generation0) - reinterpret_cast<std::uintptr_t>(gc);
        if ((first == layout.generations || first == layout.generations - padding) &&
            is_flag(read<std::int32_t>(gc, layout.enabled)) &&
            is_flag(read<std::int32_t>(gc, layout.collecting)) &&
            is_list(read<std::uintptr_t>(gc, layout.garbage)) &&
            (is_list(read<std::uintptr_t>(gc, layout.callbacks)) ||
             (minor < callbacks_from_minor && read<std::uintptr_t>(gc, layout.callbacks) == 0))) {
            collecting_.store(reinterpret_cast<const std::int32_t*>(gc + layout.collecting),
                              std::memory_order_release);
            return true;
        }
    }
    return false;
}

MEMLAB_READS_STACK bool Collector::is_on_stack(std::uintptr_t sp) {
    unwind::StackMemory memory(sp);
    // Objects are not on the stack, where most of its words lead to.
    const auto may_be_object = [sp](std::uintptr_t word) {
        return may_be_head(word) && word - sp >= max_searched;
    };
    const auto is_head = [&](std::uintptr_t at) {
        std::uintptr_t first = 0;
        std::uintptr_t last = 0;
        return memory.read(at, &first) && may_be_object(first) &&
               memory.read(at + head_previous, &last) && may_be_object(last) &&
               is_list_head(at, first, last);
    };
    if (latest_head - sp < max_searched && is_head(latest_head)) {
        return true;
    }
    std::uintptr_t at = (sp + sizeof(void*) - 1) & ~(sizeof(void*) - 1);
    for (const std::uintptr_t end = at + max_searched; at < end; at += sizeof(void*)) {
        if (at + head_bytes > memory.high() && !memory.extend(at + head_bytes, at)) {
            return false;
        }
        if (is_head(at)) {
            latest_head = at;
            return true;
        }
    }
    return false;
}

}  // namespace memlab::profiler::python
