// A record of the ledger: device memory that a call took or released without an allocation.
#pragma once

#include <cstdint>

#include "trace/event.hpp"

namespace memlab::trace {

/// What the driver takes device memory for on its own.
enum class LedgerKind : std::uint8_t {
    context,
    module,  ///< code and its variables, as it is loaded
    kernel,  ///< code that is loaded when it is first asked for
    limit,   ///< heaps and buffers whose size cuCtxSetLimit sets
    graph,   ///< executable graphs, beside their memory nodes
    stream,
    event,
    other,  ///< textures, surfaces, imports of other APIs, multicast objects, access of peers
};
inline constexpr LedgerKind last_ledger_kind = LedgerKind::other;
inline constexpr int ledger_kind_count = static_cast<int>(last_ledger_kind) + 1;
/// "context", "module", ...
const char* name_of(LedgerKind kind);

/// The device's used memory before and after a call. Written where they differ, when a context
/// ended, and for what was not measured.
struct LedgerEntry {
    std::uint64_t time_ns = 0;
    std::uint32_t device = 0;
    LedgerKind kind = LedgerKind::context;
    std::uint32_t api = 0;
    std::uint32_t stack = 0;
    std::uint32_t object = 0;   ///< StringDef::id: the file that code came from; 0: unknown
    std::uint64_t context = 0;  ///< the driver's handle; may be used again; 0: unknown
    /// Used, of the whole device. 0: there was no context in which to ask.
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    bool uncertain = false;     ///< other memory of the process changed meanwhile
    bool ended = false;         ///< the context has ended, and what it had
    std::uint64_t skipped = 0;  ///< calls of this kind that were not measured, beside this one

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.subject("device", Definition::device, self.device);
        visit.choice("kind", self.kind, last_ledger_kind);
        visit.reference("API", Definition::string, self.api);
        visit.reference("stack", Definition::stack, self.stack);
        visit.reference("object", Definition::string, self.object);
        visit.number("context", self.context);
        visit.number("used before", self.before);
        visit.number("used after", self.after);
        visit.flag("uncertain", self.uncertain);
        visit.flag("ended", self.ended);
        visit.number("not measured", self.skipped);
    }
    bool operator==(const LedgerEntry&) const = default;
};

/// Whether NVML could tell of the processes on a GPU.
enum class WitnessState : std::uint8_t {
    seen,       ///< this process is in its list
    elsewhere,  ///< it is not: NVML's process ids are of another namespace (a container)
    absent,     ///< no NVML that can be used
};
/// "seen", "elsewhere", "absent"
const char* name_of(WitnessState state);

/// What NVML says of the processes on a GPU: a second source beside the driver's figure, and the
/// only one for other processes.
struct Witness {
    std::uint64_t time_ns = 0;
    std::uint32_t device = 0;
    WitnessState state = WitnessState::absent;
    std::uint64_t own = 0;        ///< bytes of this process; 0 unless seen
    std::uint64_t others = 0;     ///< bytes of the others; elsewhere: of all
    std::uint64_t processes = 0;  ///< the number of the others; elsewhere: of all

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.subject("device", Definition::device, self.device);
        visit.choice("state", self.state, WitnessState::absent);
        visit.number("own bytes", self.own);
        visit.number("bytes of others", self.others);
        visit.number("other processes", self.processes);
    }
    bool operator==(const Witness&) const = default;
};

}  // namespace memlab::trace
