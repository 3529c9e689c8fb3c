// What a report says of the ledger of a GPU: what took its memory beside the allocations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report_shape.hpp"

namespace memlab::model {

/// A sample of the GPU's used memory, and what is known of it. Bytes.
struct LedgerMoment {
    std::uint64_t time_ns = 0;
    std::uint64_t used = 0;           ///< by the driver, the whole GPU
    std::uint64_t reserved = 0;       ///< all allocations of the process, as in the curve
    std::uint64_t pool_reserved = 0;  ///< the part of it that is memlab's pool
    std::uint64_t pool_active = 0;
    std::uint64_t segments = 0;  ///< the part of `reserved` that is a framework cache's segments
    std::uint64_t arrays = 0;
    std::uint64_t async_pool = 0;
    std::uint64_t vmm = 0;
    std::uint64_t graphs = 0;        ///< memory nodes
    std::uint64_t managed = 0;       ///< not in `reserved`: how much is resident is not known
    std::uint64_t imports = 0;       ///< not in `reserved`: others hold it
    std::uint64_t driver_pools = 0;  ///< what the driver's pools and graphs reserved; 0: unknown
    std::uint64_t growth = 0;        ///< grew beside all calls, while work was submitted

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("time_ns", self.time_ns);
        visit.number("used_bytes", self.used);
        visit.number("reserved_bytes", self.reserved);
        visit.number("pool_reserved_bytes", self.pool_reserved);
        visit.number("pool_active_bytes", self.pool_active);
        visit.number("segment_bytes", self.segments);
        visit.number("array_bytes", self.arrays);
        visit.number("async_pool_bytes", self.async_pool);
        visit.number("vmm_bytes", self.vmm);
        visit.number("graph_bytes", self.graphs);
        visit.number("managed_bytes", self.managed);
        visit.number("import_bytes", self.imports);
        visit.number("driver_pool_bytes", self.driver_pools);
        visit.number("growth_bytes", self.growth);
    }
    bool operator==(const LedgerMoment&) const = default;
};

/// What a cgroup may have of a GPU's memory. Bytes.
struct GroupLimit {
    std::string source = {};                        ///< "dmem": the kernel's controller; "nvml"
    std::string group = {};                         ///< the cgroup's path
    std::optional<std::uint64_t> limit_bytes = {};  ///< none: "max"
    std::uint64_t used_bytes = 0;                   ///< by all its processes
    std::uint64_t guaranteed_bytes = 0;             ///< nobody takes that from it
    std::uint64_t capacity_bytes = 0;               ///< of the region; 0: not told

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("source", self.source);
        visit.text("group", self.group);
        visit.number_or_null("limit_bytes", self.limit_bytes);
        visit.number("used_bytes", self.used_bytes);
        visit.number_if_any("guaranteed_bytes", self.guaranteed_bytes);
        visit.number_if_any("capacity_bytes", self.capacity_bytes);
    }
    bool operator==(const GroupLimit&) const = default;
};

struct Ledger {
    /// What one call site took for one kind of thing.
    struct Row {
        std::string kind = {};  ///< "context", "module", "kernel", ...
        std::string api = {};
        std::size_t stack = 0;
        std::string object = {};    ///< the file that code came from; empty: unknown
        std::uint64_t context = 0;  ///< numbered from 1 in order of the rows
        std::uint64_t count = 0;    ///< calls that took memory
        std::uint64_t at_peak_bytes = 0;
        std::uint64_t bytes = 0;  ///< at the latest sample
        std::uint64_t max_bytes = 0;
        bool uncertain = false;
        bool whole = false;  ///< with what was in use before

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text("kind", self.kind);
            visit.text("api", self.api);
            visit.index("stack", self.stack, Table::stacks);
            visit.text("object", self.object);
            visit.number("context", self.context);
            visit.number("count", self.count);
            visit.number("at_peak_bytes", self.at_peak_bytes);
            visit.number("bytes", self.bytes);
            visit.number("max_bytes", self.max_bytes);
            visit.flag("uncertain", self.uncertain);
            visit.flag("whole", self.whole);
        }
        bool operator==(const Row&) const = default;
    };
    /// What NVML said of the processes on the GPU.
    struct Witness {
        std::uint64_t time_ns = 0;
        std::string state = {};  ///< "seen", "elsewhere", "absent"
        std::uint64_t own_bytes = 0;
        std::uint64_t other_bytes = 0;  ///< "elsewhere": of all processes
        std::uint64_t other_processes = 0;
        /// Of the others where this process was "seen": of its own cgroup, and of others.
        std::uint64_t group_bytes = 0;
        std::uint64_t group_processes = 0;
        std::uint64_t foreign_bytes = 0;
        std::uint64_t foreign_processes = 0;
        std::vector<GroupLimit> limits = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number("time_ns", self.time_ns);
            visit.text("state", self.state);
            visit.number("own_bytes", self.own_bytes);
            visit.number("other_bytes", self.other_bytes);
            visit.number("other_processes", self.other_processes);
            visit.number_if_any("group_bytes", self.group_bytes);
            visit.number_if_any("group_processes", self.group_processes);
            visit.number_if_any("foreign_bytes", self.foreign_bytes);
            visit.number_if_any("foreign_processes", self.foreign_processes);
            visit.list_if_any("limits", self.limits);
        }
        bool operator==(const Witness&) const = default;
    };
    /// What NCCL said last of the memory of a communicator, which is part of the allocations.
    struct Communicator {
        std::uint64_t communicator = 0;  ///< numbered from 1 in the process
        std::uint64_t rank = 0;
        std::uint64_t ranks = 0;
        std::uint64_t time_ns = 0;
        std::uint64_t total_bytes = 0;
        std::uint64_t persistent_bytes = 0;
        std::uint64_t suspendable_bytes = 0;
        std::uint64_t max_total_bytes = 0;
        bool suspended = false;
        bool ended = false;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number("communicator", self.communicator);
            visit.number("rank", self.rank);
            visit.number("ranks", self.ranks);
            visit.number("time_ns", self.time_ns);
            visit.number("total_bytes", self.total_bytes);
            visit.number("persistent_bytes", self.persistent_bytes);
            visit.number("suspendable_bytes", self.suspendable_bytes);
            visit.number("max_total_bytes", self.max_total_bytes);
            visit.flag("suspended", self.suspended);
            visit.flag("ended", self.ended);
        }
        bool operator==(const Communicator&) const = default;
    };
    LedgerMoment peak = {};    ///< the sample with most memory in use
    LedgerMoment latest = {};  ///< the last sample
    std::vector<Row> rows = {};
    std::uint64_t not_measured = 0;       ///< calls
    std::vector<Witness> witnesses = {};  ///< the first and the last, if NVML was asked
    std::vector<Communicator> communicators = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.object("peak", self.peak);
        visit.object("latest", self.latest);
        visit.list("rows", self.rows);
        visit.number("not_measured", self.not_measured);
        visit.list("witnesses", self.witnesses);
        visit.list_if_any("communicators", self.communicators);
    }
    bool operator==(const Ledger&) const = default;
};

}  // namespace memlab::model
