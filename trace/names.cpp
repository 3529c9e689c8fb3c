// The names of enumerators in all outputs, and the kinds of memory in the curves.
#include "trace/record.hpp"

namespace memlab::trace {

const char* name_of(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::device:
            return "device";
        case MemoryKind::managed:
            return "managed";
        case MemoryKind::pinned:
            return "pinned";
        case MemoryKind::array:
            return "array";
        case MemoryKind::async_pool:
            return "async_pool";
        case MemoryKind::vmm:
            return "vmm";
        case MemoryKind::ipc_import:
            return "ipc_import";
        case MemoryKind::graph:
            return "graph";
        case MemoryKind::suballocation:
            return "suballocation";
    }
    return "unknown";
}

[[gnu::hot]] bool counts_as_device_memory(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::device:
        case MemoryKind::array:
        case MemoryKind::async_pool:
        case MemoryKind::vmm:
        case MemoryKind::graph:
        case MemoryKind::suballocation:
            return true;
        case MemoryKind::managed:
        case MemoryKind::pinned:
        case MemoryKind::ipc_import:
            return false;
    }
    return false;
}

const char* name_of(WorkKind kind) {
    switch (kind) {
        case WorkKind::kernel:
            return "kernel";
        case WorkKind::copy:
            return "copy";
        case WorkKind::fill:
            return "fill";
    }
    return "unknown";
}

const char* name_of(LedgerKind kind) {
    switch (kind) {
        case LedgerKind::context:
            return "context";
        case LedgerKind::module:
            return "module";
        case LedgerKind::kernel:
            return "kernel";
        case LedgerKind::limit:
            return "limit";
        case LedgerKind::graph:
            return "graph";
        case LedgerKind::stream:
            return "stream";
        case LedgerKind::event:
            return "event";
        case LedgerKind::other:
            return "other";
        case LedgerKind::launch:
            return "launch";
    }
    return "unknown";
}

const char* name_of(LimitSource source) {
    switch (source) {
        case LimitSource::none:
            return "none";
        case LimitSource::dmem:
            return "dmem";
        case LimitSource::nvml:
            return "nvml";
    }
    return "unknown";
}

const char* name_of(WitnessState state) {
    switch (state) {
        case WitnessState::seen:
            return "seen";
        case WitnessState::elsewhere:
            return "elsewhere";
        case WitnessState::absent:
            return "absent";
    }
    return "unknown";
}

const char* name_of(EventType type) {
    switch (type) {
        case EventType::alloc:
            return "alloc";
        case EventType::free_requested:
            return "free_requested";
        case EventType::free_completed:
            return "free_completed";
        case EventType::segment_alloc:
            return "segment_alloc";
        case EventType::segment_free:
            return "segment_free";
        case EventType::segment_map:
            return "segment_map";
        case EventType::segment_unmap:
            return "segment_unmap";
        case EventType::alloc_retry:
            return "alloc_retry";
        case EventType::sync:
            return "sync";
        case EventType::mark:
            return "mark";
        case EventType::scope_begin:
            return "scope_begin";
        case EventType::scope_end:
            return "scope_end";
        case EventType::empty_cache:
            return "empty_cache";
        case EventType::tick:
            return "tick";
        case EventType::reclaim:
            return "reclaim";
        case EventType::label:
            return "label";
    }
    return "unknown";
}

}  // namespace memlab::trace
