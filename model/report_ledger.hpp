// What a report says of the ledger of a GPU: what took its memory beside the allocations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report_shape.hpp"
#include "trace/ledger_entry.hpp"

namespace memlab::model {

/// A sample of the GPU's used memory, and what is known of it. Bytes.
struct LedgerMoment {
    std::uint64_t time_ns = 0;
    std::uint64_t used = 0;
    std::uint64_t reserved = 0;
    std::uint64_t pool_reserved = 0;
    std::uint64_t pool_active = 0;
    std::uint64_t segments = 0;
    std::uint64_t arrays = 0;
    std::uint64_t async_pool = 0;
    std::uint64_t vmm = 0;
    std::uint64_t graphs = 0;
    std::uint64_t managed = 0;
    std::uint64_t imports = 0;
    std::uint64_t driver_pools = 0;
    std::uint64_t growth = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"time_ns", "when it was taken"}, self.time_ns);
        visit.number({"used_bytes", "the driver's figure, of the whole GPU"}, self.used);
        visit.number({"reserved_bytes", "all allocations of the process, as in the curve"},
                     self.reserved);
        visit.number({"pool_reserved_bytes", "the part of it that is memlab's pool"},
                     self.pool_reserved);
        visit.number({"pool_active_bytes", "active in the pool"}, self.pool_active);
        visit.number({"segment_bytes",
                      "the part of `reserved_bytes` that is segments of a framework's cache"},
                     self.segments);
        visit.number({"array_bytes", "the part of it that is arrays"}, self.arrays);
        visit.number({"async_pool_bytes", "the part of it from the driver's pools"},
                     self.async_pool);
        visit.number({"vmm_bytes", "the part of it that is virtual memory management's"}, self.vmm);
        visit.number({"graph_bytes", "the part of it that is memory nodes of graphs"}, self.graphs);
        visit.number({"managed_bytes",
                      "in addition: managed memory; how much of it is resident is not "
                      "known"},
                     self.managed);
        visit.number({"import_bytes", "in addition: memory of other processes that is mapped here"},
                     self.imports);
        visit.number({"driver_pool_bytes",
                      "reserved by the driver's pools and graphs, in use or not; 0: unknown"},
                     self.driver_pools);
        visit.number({"growth_bytes", "growth between measured calls while work was submitted"},
                     self.growth);
    }
    bool operator==(const LedgerMoment&) const = default;
};

/// What a cgroup may have of a GPU's memory. Bytes.
struct GroupLimit {
    std::string source = {};
    std::string group = {};
    std::optional<std::uint64_t> limit_bytes = {};
    std::uint64_t used_bytes = 0;
    std::uint64_t guaranteed_bytes = 0;
    std::uint64_t capacity_bytes = 0;  ///< 0: not told

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"source", "`dmem`: the kernel's controller; `nvml`: NVML",
                    NameOf<trace::LimitSource>{}},
                   self.source);
        visit.text({"group", "the cgroup's path"}, self.group);
        visit.number_or_null({"limit_bytes", "its limit; null: none"}, self.limit_bytes);
        visit.number({"used_bytes", "what all its processes have"}, self.used_bytes);
        visit.number_if_any({"guaranteed_bytes", "what is guaranteed to it"},
                            self.guaranteed_bytes);
        visit.number_if_any({"capacity_bytes", "the size of the region"}, self.capacity_bytes);
    }
    bool operator==(const GroupLimit&) const = default;
};

struct Ledger {
    static constexpr std::size_t max_communicators = 1024;
    /// What one call site took for one kind of thing.
    struct Row {
        std::string kind = {};
        std::string api = {};
        std::size_t stack = 0;
        std::string object = {};
        std::uint64_t context = 0;
        std::uint64_t count = 0;
        std::uint64_t at_peak_bytes = 0;
        std::uint64_t bytes = 0;
        std::uint64_t max_bytes = 0;
        bool uncertain = false;
        bool whole = false;
        bool estimated = false;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text({"kind", "what took memory", NameOf<trace::LedgerKind>{}}, self.kind);
            visit.text({"api", "the function that the program called"}, self.api);
            visit.index({"stack", "the call stack"}, self.stack, Table::stacks);
            visit.text({"object", "the file that code came from, or empty"}, self.object);
            visit.number({"context", "numbered from 1 in order of the rows; 0: unknown"},
                         self.context);
            visit.number({"count", "calls that took memory; `estimated`: calls"}, self.count);
            visit.number({"at_peak_bytes", "held at the sample with most memory in use"},
                         self.at_peak_bytes);
            visit.number({"bytes", "held at the last sample"}, self.bytes);
            visit.number({"max_bytes", "the most that it held"}, self.max_bytes);
            visit.flag({"uncertain", "other memory of the process changed meanwhile"},
                       self.uncertain);
            visit.flag({"whole",
                        "created before the driver could be queried: includes what was "
                        "in use then"},
                       self.whole);
            visit.flag_if_any(
                {"estimated",
                 "calls that were not measured, by the mean of the measured ones of their kind; "
                 "at most the growth of the GPU's figure"},
                self.estimated);
        }
        bool operator==(const Row&) const = default;
    };
    /// What NVML said of the processes on the GPU.
    struct Witness {
        std::uint64_t time_ns = 0;
        std::string state = {};
        std::uint64_t own_bytes = 0;
        std::uint64_t other_bytes = 0;
        std::uint64_t other_processes = 0;
        /// Of the others where this process was "seen": of its own cgroup, and of others.
        std::uint64_t group_bytes = 0;
        std::uint64_t group_processes = 0;
        std::uint64_t foreign_bytes = 0;
        std::uint64_t foreign_processes = 0;
        std::vector<GroupLimit> limits = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"time_ns", "when it answered"}, self.time_ns);
            visit.text({"state",
                        "`seen`: this process is in its list; `elsewhere`: its process ids are of "
                        "another namespace; `absent`: it cannot be queried",
                        NameOf<trace::WitnessState>{}},
                       self.state);
            visit.number({"own_bytes", "of this process"}, self.own_bytes);
            visit.number({"other_bytes", "of other processes; `elsewhere`: of all"},
                         self.other_bytes);
            visit.number({"other_processes", "how many they are"}, self.other_processes);
            visit.number_if_any(
                {"group_bytes",
                 "the part of other processes of the own cgroup, where this process was `seen`"},
                self.group_bytes);
            visit.number_if_any({"group_processes", "how many they are"}, self.group_processes);
            visit.number_if_any({"foreign_bytes",
                                 "the part of processes of other cgroups; the rest had ended or is "
                                 "hidden, or the log is an older one"},
                                self.foreign_bytes);
            visit.number_if_any({"foreign_processes", "how many they are"}, self.foreign_processes);
            visit.list_if_any({"limits", "what the cgroup may have", AtMost{2}}, self.limits);
        }
        bool operator==(const Witness&) const = default;
    };
    /// What NCCL said last of the memory of a communicator, which is part of the allocations.
    struct Communicator {
        std::uint64_t communicator = 0;
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
            visit.number({"communicator", "numbered from 1"}, self.communicator);
            visit.number({"rank", "of this process"}, self.rank);
            visit.number({"ranks", "of the communicator"}, self.ranks);
            visit.number({"time_ns", "the time of these figures"}, self.time_ns);
            visit.number({"total_bytes", "all its memory"}, self.total_bytes);
            visit.number({"persistent_bytes", "the part that it keeps while it lives"},
                         self.persistent_bytes);
            visit.number({"suspendable_bytes", "the part that it can release temporarily"},
                         self.suspendable_bytes);
            visit.number({"max_total_bytes", "the most that `total_bytes` was"},
                         self.max_total_bytes);
            visit.flag({"suspended", "that part was released"}, self.suspended);
            visit.flag({"ended", "it ended after that"}, self.ended);
        }
        bool operator==(const Communicator&) const = default;
    };
    LedgerMoment peak = {};
    LedgerMoment latest = {};
    std::vector<Row> rows = {};
    std::uint64_t not_measured = 0;
    std::vector<Witness> witnesses = {};
    std::vector<Communicator> communicators = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.object({"peak", "the sample with most memory in use"}, self.peak);
        visit.object({"latest", "the last sample"}, self.latest);
        visit.list({"rows", "what each call site took"}, self.rows);
        visit.number({"not_measured", "calls beyond the budget"}, self.not_measured);
        visit.list({"witnesses", "the first and the last answer of NVML", AtMost{2}},
                   self.witnesses);
        visit.list_if_any(
            {"communicators", "the last figures of NCCL for each", AtMost{max_communicators}},
            self.communicators);
    }
    bool operator==(const Ledger&) const = default;
};

}  // namespace memlab::model
