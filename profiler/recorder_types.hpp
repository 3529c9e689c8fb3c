// What callers tell the recorder.
#pragma once

#include <cstdint>

#include "profiler/stack_table.hpp"
#include "trace/event.hpp"

namespace memlab::profiler {

struct StackLimits {
    std::uint32_t depth;  ///< max. frames per stack; 0: no stacks
    std::uint32_t max_stacks = StackTable::default_max_stacks;
};

/// When the free_completed of a free_requested happens.
enum class Freed : std::uint8_t { at_once, later };

/// A block that an allocator of the program's hands out or takes back.
struct Suballocation {
    std::uint32_t device;   ///< DeviceInfo::index, of that allocator
    std::uint32_t context;  ///< ContextInfo::id
    std::uint32_t api;      ///< string_id() of the function that did so
    std::uint32_t stack;    ///< capture_call_site(); 0 of a free
    std::uint64_t address;
    std::uint64_t bytes;           ///< what the program asked for is not told
    std::uint32_t nn_modules = 0;  ///< NnModuleStackDef::id; 0 of a free

    /// An alloc or a free_requested of it, without time and thread.
    trace::Event event(trace::EventType type) const {
        trace::Event event;
        event.type = type;
        event.kind = trace::MemoryKind::suballocation;
        event.origin = trace::Origin::pool;
        event.device = device;
        event.context = context;
        event.api = api;
        event.stack = stack;
        event.nn_modules = nn_modules;
        event.address = address;
        event.requested = bytes;
        event.size = bytes;
        return event;
    }
};

}  // namespace memlab::profiler
