// The records of the ledger: device memory that a call took or released without an allocation, and
// what the driver, NVML, the kernel and NCCL say of a device's memory.
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
    other,   ///< textures, surfaces, imports of other APIs, multicast objects, access of peers
    launch,  ///< a function's first launch: code that is loaded then, local memory
};
inline constexpr LedgerKind last_ledger_kind = LedgerKind::launch;
inline constexpr int ledger_kind_count = static_cast<int>(last_ledger_kind) + 1;
/// "context", "module", ...
const char* name_of(LedgerKind kind);

/// The device's used memory before and after a call. Written where they differ and when a context
/// ended; and, without figures, before a sample: how many calls there were since the one before of
/// which there is no record of their own.
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
    std::uint64_t skipped_returns = 0;  ///< of these: those that give memory back
    /// Measured calls of this kind that could take memory and took none, beside this one.
    std::uint64_t unchanged = 0;

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
        visit.number("not measured that give back", self.skipped_returns);
        visit.number("measured without change", self.unchanged);
    }
    bool operator==(const LedgerEntry&) const = default;
};

/// The driver's figures for the whole device, including other processes: used = total - free.
struct DeviceSample {
    std::uint64_t time_ns = 0;
    std::uint32_t device = 0;
    std::uint64_t used = 0;
    std::uint64_t total = 0;
    std::uint64_t pools = 0;  ///< reserved by the driver's pools and graphs; 0: none, or unknown
    bool worked = false;      ///< the process submitted work since the sample before

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.subject("device", Definition::device, self.device);
        visit.number("used", self.used);
        visit.number("total", self.total);
        visit.number("reserved by the driver's pools", self.pools);
        visit.flag("work since the last one", self.worked);
    }
    bool operator==(const DeviceSample&) const = default;
};

/// Who tells what a cgroup may have of a device's memory.
enum class LimitSource : std::uint8_t {
    none,
    dmem,  ///< the kernel's controller: the cgroup's files
    nvml,  ///< nvmlDeviceGetMemoryLimits
};
/// "none", "dmem", "nvml"
const char* name_of(LimitSource source);

/// What a cgroup may have of a device's memory, and has. Bytes.
struct GroupLimit {
    static constexpr std::uint64_t unlimited = ~std::uint64_t{0};
    std::uint32_t group = 0;  ///< StringDef::id: the cgroup's path; 0: nothing is known
    std::uint64_t limit = 0;
    std::uint64_t used = 0;        ///< by all its processes
    std::uint64_t guaranteed = 0;  ///< nobody takes that from it: dmem.min, NVML's soft limit

    bool operator==(const GroupLimit&) const = default;
};

/// Whether what follows in a record is there: always, except a checkpoint's state of before.
template <typename Visitor>
bool has_since(Visitor& visit, std::uint32_t state_version) {
    if constexpr (requires { visit.has(state_version); }) {
        return visit.has(state_version);
    }
    return true;
}

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
    /// Of the others, where this process was seen: those of its own cgroup and pid namespace, and
    /// those of others. Of the rest that could not be told.
    std::uint64_t group_bytes = 0;
    std::uint64_t group_processes = 0;
    std::uint64_t foreign_bytes = 0;
    std::uint64_t foreign_processes = 0;
    GroupLimit dmem = {};        ///< the tightest of its cgroup and of those above
    std::uint64_t capacity = 0;  ///< of the region, by dmem; 0: not told
    GroupLimit nvml = {};        ///< of its cgroup, by NVML

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.subject("device", Definition::device, self.device);
        visit.choice("state", self.state, WitnessState::absent);
        visit.number("own bytes", self.own);
        visit.number("bytes of others", self.others);
        visit.number("other processes", self.processes);
        if (!has_since(visit, 4)) {
            return;
        }
        visit.number("bytes of the cgroup's others", self.group_bytes);
        visit.number("other processes of the cgroup", self.group_processes);
        visit.number("bytes of other cgroups", self.foreign_bytes);
        visit.number("processes of other cgroups", self.foreign_processes);
        visit.reference("dmem: cgroup", Definition::string, self.dmem.group);
        visit.number("limit", self.dmem.limit);
        visit.number("used", self.dmem.used);
        visit.number("guaranteed", self.dmem.guaranteed);
        visit.number("capacity", self.capacity);
        visit.reference("NVML: cgroup", Definition::string, self.nvml.group);
        visit.number("limit", self.nvml.limit);
        visit.number("used", self.nvml.used);
        visit.number("guaranteed", self.nvml.guaranteed);
    }
    bool operator==(const Witness&) const = default;
};

/// What NCCL says of the device memory of a communicator (ncclCommMemStats). All of it is part of
/// the process's allocations.
struct CommunicatorMemory {
    std::uint64_t time_ns = 0;
    std::uint32_t device = 0;
    std::uint32_t communicator = 0;  ///< numbered from 1 in this process
    std::uint32_t rank = 0;
    std::uint32_t ranks = 0;        ///< 0: not known
    std::uint64_t total = 0;        ///< bytes that NCCL tracks
    std::uint64_t persistent = 0;   ///< of these: what ncclCommSuspend does not give back
    std::uint64_t suspendable = 0;  ///< of these: what it does
    bool suspended = false;         ///< and has given back
    bool ended = false;             ///< the communicator is destroyed after this

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.subject("device", Definition::device, self.device);
        visit.number("communicator", self.communicator);
        visit.number("rank", self.rank);
        visit.number("ranks", self.ranks);
        visit.number("total", self.total);
        visit.number("persistent", self.persistent);
        visit.number("suspendable", self.suspendable);
        visit.flag("suspended", self.suspended);
        visit.flag("ended", self.ended);
    }
    bool operator==(const CommunicatorMemory&) const = default;
};

}  // namespace memlab::trace
