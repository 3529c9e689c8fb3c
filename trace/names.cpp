// The names of enumerators in all outputs, and the kinds of memory in the curves.
#include "trace/record.hpp"

namespace memlab::trace {

const char* name_of(MemoryKind kind) {
    static constexpr const char* names[] = {"device",     "managed",    "pinned",
                                            "array",      "async_pool", "vmm",
                                            "ipc_import", "graph",      "suballocation"};
    return name_in<last_memory_kind>(names, kind);
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
    static constexpr const char* names[] = {"kernel", "copy", "fill"};
    return name_in<WorkKind::fill>(names, kind);
}

const char* name_of(LedgerKind kind) {
    static constexpr const char* names[] = {"context", "module", "kernel", "limit", "graph",
                                            "stream",  "event",  "other",  "launch"};
    return name_in<last_ledger_kind>(names, kind);
}

const char* name_of(LimitSource source) {
    static constexpr const char* names[] = {"none", "dmem", "nvml"};
    return name_in<LimitSource::nvml>(names, source);
}

const char* name_of(WitnessState state) {
    static constexpr const char* names[] = {"seen", "elsewhere", "absent"};
    return name_in<WitnessState::absent>(names, state);
}

const char* name_of(EventType type) {
    static constexpr const char* names[] = {
        "alloc",        "free_requested", "free_completed", "segment_alloc",
        "segment_free", "segment_map",    "segment_unmap",  "alloc_retry",
        "sync",         "mark",           "scope_begin",    "scope_end",
        "empty_cache",  "tick",           "reclaim",        "label"};
    return name_in<EventType::label>(names, type);
}

}  // namespace memlab::trace
