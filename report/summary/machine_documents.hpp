// What memlab-ctl holders --json and memlab-top --json print of a machine: who holds the memory of
// its GPUs at one moment. The JSON, its schema and its table in docs/report-format.md are all made
// of these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/field_name.hpp"
#include "model/interval_document.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

/// A GPU of the machine.
struct MachineGpu {
    std::uint64_t index = 0;
    std::string uuid;
    std::string name;
    std::uint64_t total_bytes = 0;
    std::uint64_t used_bytes = 0;
    std::uint64_t free_bytes = 0;
    std::optional<std::uint64_t> unaccounted_bytes;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number(
            {"index", "NVML's; where NVML says nothing, the order in which they are known"},
            self.index);
        visit.text({"uuid", "\"GPU-...\", or \"MIG-...\" of an instance"}, self.uuid);
        visit.text({"name", "its model; empty: not known"}, self.name);
        visit.number({"total_bytes", "of its memory; 0: not known"}, self.total_bytes);
        visit.number({"used_bytes", "in use, by whomever"}, self.used_bytes);
        visit.number({"free_bytes", "the rest"}, self.free_bytes);
        visit.number_or_null({"unaccounted_bytes",
                              "in use by no process that is listed: the driver's own, or other "
                              "containers'; null: not known"},
                             self.unaccounted_bytes);
    }
};

/// What memlab knows of a process on one GPU.
struct MemlabUse {
    std::uint64_t allocated_bytes = 0;
    std::uint64_t max_allocated_bytes = 0;
    std::uint64_t reserved_bytes = 0;
    std::uint64_t max_reserved_bytes = 0;
    std::uint64_t cached_bytes = 0;
    std::optional<std::uint64_t> tensor_bytes;
    std::uint64_t live_count = 0;
    std::optional<std::uint64_t> limit_bytes;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"allocated_bytes", "now"}, self.allocated_bytes);
        visit.number({"max_allocated_bytes", "the most so far"}, self.max_allocated_bytes);
        visit.number({"reserved_bytes", "now"}, self.reserved_bytes);
        visit.number({"max_reserved_bytes", "the most so far"}, self.max_reserved_bytes);
        visit.number({"cached_bytes", "of memlab's pool: reserved and not in use"},
                     self.cached_bytes);
        visit.number_or_null({"tensor_bytes",
                              "in tensors, of a framework whose cache is seen from inside; else "
                              "null"},
                             self.tensor_bytes);
        visit.number({"live_count", "allocations that are not freed"}, self.live_count);
        visit.number_or_null({"limit_bytes", "MEMLAB_LIMIT or `limit`; null: none"},
                             self.limit_bytes);
    }
};

/// A call site that holds memory now.
struct HeldSite {
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
    std::uint64_t gpu = 0;
    std::string kind;
    std::string api;
    std::optional<Place> place;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"bytes", "held now"}, self.bytes);
        visit.number({"count", "of the allocations that are these"}, self.count);
        visit.number({"gpu", "its index in the program"}, self.gpu);
        visit.text({"kind", "of memory"}, self.kind);
        visit.text({"api", "the function that was called"}, self.api);
        visit.object_or_null({"place", "the line of the source; null: no call stack was recorded"},
                             self.place);
    }
};

/// What both documents say of a process: which it is,
template <typename Self, typename Visitor>
void identity_fields(Self& self, Visitor& visit) {
    visit.text({"command",
                "with its arguments, unless `MEMLAB_ARGUMENTS=off` is set here "
                "or there"},
               self.command);
    visit.text_or_null({"user", "its owner's name or number"}, self.user);
    visit.number({"start_wall_ns", "when it started, since the Unix epoch; 0: not known"},
                 self.start_wall_ns);
}
/// its container,
template <typename Container, typename Visitor>
void container_field(Container& container, Visitor& visit) {
    visit.text_or_null({"container", "the start of its id, or its name; null: none"}, container);
}
/// and what memlab in it knows.
template <typename Use, typename Visitor>
void memlab_field(Use& use, Visitor& visit) {
    visit.object_or_null({"memlab",
                          "what memlab in it knows; null: it is not in it, or "
                          "does not answer"},
                         use);
}

/// memlab-ctl holders --json.
struct HoldersDocument {
    struct Process {
        std::uint64_t pid = 0;
        bool visible = false;
        std::optional<std::uint64_t> bytes;
        bool listed_by_nvml = false;
        std::string command;
        std::string user;
        std::uint64_t start_wall_ns = 0;
        std::string state;
        std::uint64_t parent = 0;
        bool parent_gone = false;
        bool zombie = false;
        std::string container;
        std::string cgroup;
        std::optional<MemlabUse> memlab;
        std::vector<HeldSite> sites;
        std::vector<std::string> advice;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"pid", "its id"}, self.pid);
            visit.flag({"visible",
                        "false: `/proc` does not show it, and of what follows little is "
                        "known"},
                       self.visible);
            visit.number_or_null({"bytes",
                                  "of this GPU, its contexts and code among them, as NVML says; "
                                  "null: it does not"},
                                 self.bytes);
            visit.flag({"listed_by_nvml", "as a user of this GPU"}, self.listed_by_nvml);
            identity_fields(self, visit);
            visit.text({"state", "as `ps` has it: `R`, `S`, `D`, `Z`, `T`; `?`: not known"},
                       self.state);
            visit.number({"parent", "its parent's id; 0: not known"}, self.parent);
            visit.flag({"parent_gone", "who started it has ended"}, self.parent_gone);
            visit.flag({"zombie", "its main thread has ended"}, self.zombie);
            container_field(self.container, visit);
            visit.text_or_null({"cgroup", "its path; null: the root, or not known"}, self.cgroup);
            memlab_field(self.memlab, visit);
            visit.list({"sites", "the call sites that hold the most of this GPU, largest first"},
                       self.sites);
            visit.texts({"advice", "what can be done, sentences"}, self.advice);
        }
    };
    struct Gpu {
        MachineGpu gpu;
        std::vector<Process> processes;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            MachineGpu::fields(self.gpu, visit);
            visit.list({"processes", "that use it, those that hold the most first"},
                       self.processes);
        }
    };
    std::string host;
    std::uint64_t wall_ns = 0;
    std::string driver;
    std::vector<Gpu> gpus;
    std::vector<std::string> unknown;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, "memlab-holders");
        visit.constant({"version", "of the format"}, 1);
        visit.text({"host", "the name of the machine"}, self.host);
        visit.number({"wall_ns", "of that moment, since the Unix epoch"}, self.wall_ns);
        visit.text_or_null({"driver", "its version"}, self.driver);
        visit.list({"gpus", "of the machine, or the one that was asked for"}, self.gpus);
        visit.texts({"unknown", "what is not known of the whole, sentences"}, self.unknown);
    }
};

/// memlab-top --json.
struct TopDocument {
    struct Use {
        std::uint64_t gpu = 0;
        std::string uuid;
        std::optional<std::uint64_t> used_bytes;
        std::optional<MemlabUse> memlab;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"gpu", "`index` of one of the machine's"}, self.gpu);
            visit.text({"uuid", "of that"}, self.uuid);
            visit.number_or_null({"used_bytes",
                                  "of it, contexts and code among them, as NVML says; null: it "
                                  "does not"},
                                 self.used_bytes);
            memlab_field(self.memlab, visit);
        }
    };
    struct Process {
        std::uint64_t pid = 0;
        std::string command;
        std::string user;
        std::uint64_t start_wall_ns = 0;
        std::string container;
        bool under_memlab = false;
        std::string problem;
        std::optional<std::string> rank;
        std::optional<std::uint64_t> pinned_bytes;
        std::optional<std::uint64_t> managed_bytes;
        std::optional<std::uint64_t> oom_count;
        std::optional<std::uint64_t> step_count;
        std::optional<std::int64_t> growth_per_minute;
        std::optional<std::int64_t> growth_per_step;
        std::vector<Use> gpus;
        std::vector<HeldSite> sites;
        std::vector<model::IntervalDocument::NnModule> nn_modules;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"pid", "its id"}, self.pid);
            identity_fields(self, visit);
            container_field(self.container, visit);
            visit.flag({"under_memlab", "it has a control channel"}, self.under_memlab);
            visit.text_or_null({"problem", "why it does not answer"}, self.problem);
            visit.text_or_null({"rank", "of a launcher's job; null: none"}, self.rank);
            visit.number_or_null({"pinned_bytes",
                                  "of host memory, pinned; null, as those below, "
                                  "where it does not answer"},
                                 self.pinned_bytes);
            visit.number_or_null({"managed_bytes", "of managed memory"}, self.managed_bytes);
            visit.number_or_null({"oom_count", "allocations that failed for lack of memory"},
                                 self.oom_count);
            visit.number_or_null({"step_count",
                                  "that ended, of the largest loop; null: none "
                                  "marked"},
                                 self.step_count);
            visit.signed_or_null({"growth_per_minute",
                                  "bytes, of what stays; null: it was not seen for long enough, "
                                  "as in one sample"},
                                 self.growth_per_minute);
            visit.signed_or_null({"growth_per_step", "the same; null: no steps are known, too"},
                                 self.growth_per_step);
            visit.list({"gpus", "that it uses"}, self.gpus);
            visit.list({"sites", "the call sites that hold the most, largest first"}, self.sites);
            visit.list({"nn_modules", "nn.Modules of PyTorch that hold the most, largest first"},
                       self.nn_modules);
        }
    };
    std::string host;
    std::uint64_t wall_ns = 0;
    std::string driver;
    std::vector<MachineGpu> gpus;
    std::vector<Process> processes;
    std::vector<std::string> unknown;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, "memlab-top");
        visit.constant({"version", "of the format"}, 1);
        visit.text({"host", "the name of the machine"}, self.host);
        visit.number({"wall_ns", "of that moment, since the Unix epoch"}, self.wall_ns);
        visit.text_or_null({"driver", "its version"}, self.driver);
        visit.list({"gpus", "of the machine"}, self.gpus);
        visit.list({"processes", "that use a GPU or run under memlab, by id"}, self.processes);
        visit.texts({"unknown", "what is not known of the whole, sentences"}, self.unknown);
    }
};

}  // namespace memlab::report
