// A report: schema version 1 (docs/report-format.md) as plain data. Sizes are bytes, times
// nanoseconds since the process started. In one that was read every index is checked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report_device.hpp"
#include "model/report_entries.hpp"
#include "model/report_nn_modules.hpp"
#include "model/report_process.hpp"
#include "model/report_scopes.hpp"
#include "model/report_shape.hpp"

namespace memlab::model {

inline constexpr std::uint64_t schema_version = 1;

/// NVML's figures of the other processes on the GPU.
struct OtherProcesses {
    std::uint64_t bytes = 0;
    std::uint64_t processes = 0;
    std::uint64_t time_ns = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"bytes", "what they hold of the GPU"}, self.bytes);
        visit.number({"processes", "how many they are"}, self.processes);
        visit.number({"time_ns", "when NVML answered, shortly after the failure"}, self.time_ns);
    }
    bool operator==(const OtherProcesses&) const = default;
};

struct Oom {
    struct PoolBytes {
        std::uint64_t reserved = 0;
        std::uint64_t active = 0;
        std::uint64_t allocated = 0;
        std::uint64_t largest_free = 0;
        std::uint64_t large_free = 0;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"reserved_bytes", "what it holds from the driver"}, self.reserved);
            visit.number({"active_bytes", "the part of it that is active"}, self.active);
            visit.number({"allocated_bytes", "the part of it that is allocated"}, self.allocated);
            visit.number(
                {"largest_free_bytes", "the largest block of what is reserved and not active"},
                self.largest_free);
            visit.number(
                {"large_free_bytes",
                 "the part of that memory that is left over in segments for blocks above 1 MiB"},
                self.large_free);
        }
        bool operator==(const PoolBytes&) const = default;
    };
    using Others = OtherProcesses;
    std::uint64_t time_ns = 0;
    std::uint64_t device = 0;
    std::uint64_t context = 0;
    std::uint64_t thread = 0;
    std::string api = {};
    std::string kind = {};
    std::size_t stack = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t device_free_bytes = 0;
    std::uint64_t device_total_bytes = 0;
    std::optional<std::uint64_t> limit_bytes = {};
    std::uint64_t largest_free_block_bytes = 0;
    std::int64_t error = 0;
    CurveValues current = {};
    PoolBytes pool = {};
    Named<std::uint64_t> kinds = {};  ///< live bytes
    Holders holders = {};
    std::vector<GroupLimit> group_limits = {};  ///< that of a cgroup with least room, if any
    std::optional<Others> others = {};
    std::string refused_by = {};                ///< empty: not known
    std::vector<std::string> explanation = {};  ///< empty in reports of earlier versions

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"time_ns", "when it failed"}, self.time_ns);
        visit.number({"device", "the index of the device"}, self.device);
        visit.extra({"context", "the context"}, self.context);
        visit.number({"thread", "the thread"}, self.thread);
        visit.text({"api", "the function that the program called"}, self.api);
        visit.index({"stack", "the call stack"}, self.stack, Table::stacks);
        visit.text({"kind", "the kind of memory", NameOf<trace::MemoryKind>{}}, self.kind);
        visit.number({"requested_bytes", "what was asked for"}, self.requested_bytes);
        visit.number(
            {"device_free_bytes", "the driver's figure, after cached segments were given back"},
            self.device_free_bytes);
        visit.number({"device_total_bytes", "the driver's figure"}, self.device_total_bytes);
        visit.for_others([&self](auto& others) {
            others.number_or_null(
                {"limit_bytes", "what `MEMLAB_LIMIT` left the program; null: no limit"},
                self.limit_bytes);
        });
        visit.number(
            {"largest_free_block_bytes", "of the pool, before cached segments were given back"},
            self.largest_free_block_bytes);
        visit.signed_number({"error", "the CUresult that the program got"}, self.error);
        visit.object({"current", "the curves at that moment"}, self.current);
        visit.for_others([&self](auto& others) {
            others.object({"pool", "memlab's pool alone"}, self.pool);
            others.named_numbers(
                {"kinds", "live bytes of each kind of memory, those that are not 0",
                 NameOf<trace::MemoryKind>{}},
                self.kinds);
        });
        visit.group({"holders", "who held the memory"}, [&self](auto& holders) {
            Holders::fields(
                self.holders, holders, Holders::max_oom_sites, [](auto& share, auto& item) {
                    Holders::Share::fields(share, item);
                    item.extra({"allocations", "how many it had made so far"}, share.allocations);
                    item.list_if_any(
                        {"labels",
                         "what the program calls that memory, most bytes first; with more, the "
                         "last is `(other names)`, the sum of all others",
                         AtMost{max_site_labels}},
                        share.labels);
                });
        });
        visit.list_if_any(
            {"group_limits", "the limit of a cgroup of this process that left least", AtMost{1}},
            self.group_limits);
        visit.object_if_any({"others", "the other processes on the GPU, by NVML", Newer{}},
                            self.others);
        visit.text_if_any({"refused_by",
                           "who refused it: the driver, `MEMLAB_LIMIT`, the driver for a cgroup's "
                           "limit, or the program's own allocator, by a limit of its own",
                           one_of("driver", "memlab_limit", "cgroup", "allocator"), Newer{}},
                          self.refused_by);
        visit.texts_if_known({"explanation",
                              "the same in sentences, who refused it and why it did not fit, as "
                              "printed on stderr"},
                             self.explanation);
    }
    bool operator==(const Oom&) const = default;
};

struct Report {
    static constexpr std::size_t max_threads = 4096;
    static constexpr std::size_t max_ooms = 32;
    static constexpr std::size_t max_marks = 4096;
    static constexpr std::size_t max_scopes = 2048;
    static constexpr std::size_t max_steps = 64;
    static constexpr std::size_t max_labels = 64 << 10;

    // In one source: each that copies, moves or ends a report would otherwise compile these for all
    // the vectors within.
    Report();
    Report(const Report& other);
    Report(Report&& other) noexcept;
    Report& operator=(const Report& other);
    Report& operator=(Report&& other) noexcept;
    ~Report();

    std::string memlab_version = {};
    Process process = {};
    Named<std::string> options = {};
    std::vector<Device> devices = {};
    std::vector<Context> contexts = {};  ///< for other tools: empty in a report that was read
    std::vector<Thread> threads = {};
    std::vector<Site> sites = {};
    std::vector<Stack> stacks = {};
    std::vector<Frame> frames = {};
    std::vector<PythonFrame> python_frames = {};
    std::vector<Module> modules = {};
    std::vector<Oom> ooms = {};
    std::uint64_t oom_count = 0;
    std::vector<Mark> marks = {};
    std::uint64_t mark_count = 0;
    std::vector<Scope> scopes = {};
    UnbalancedScopes unbalanced_scopes = {};
    std::vector<Steps> steps = {};
    std::optional<std::uint64_t> step_kinds_left_out = {};
    std::vector<Label> labels = {};
    std::vector<NnModuleStack> nn_modules = {};
    std::vector<LiveAllocation> largest_live = {};
    std::vector<Missed> missed = {};
    Coverage coverage = {};
    Integrity integrity = {};
    LogInfo log = {};
    bool steps_looked_for = false;  ///< steps that are not marked, while the log was read
    bool from_log = false;  ///< derived from an event log; the process may have written no report

    /// The name of a thread by the kernel's id; null: it has none.
    const std::string* thread_name(std::uint64_t id) const {
        const auto found = std::find_if(threads.rbegin(), threads.rend(),
                                        [id](const Thread& thread) { return thread.id == id; });
        return found == threads.rend() ? nullptr : &found->name;
    }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, "memlab-report");
        visit.constant({"version", "of the format"}, schema_version);
        visit.text({"memlab_version", "of the library that recorded"}, self.memlab_version);
        visit.line();
        visit.object({"process", "the process that was recorded"}, self.process);
        visit.line();
        visit.named_texts({"options",
                           "the value of every option, by name; and the variables that switch a "
                           "framework's own cache off, where they are set"},
                          self.options);
        visit.line();
        visit.table({"devices", "the GPUs, and the allocators of the program on them, by index"},
                    self.devices, Layout::lines);
        visit.line();
        visit.for_others([&self](auto& others) {
            others.table({"contexts", "the CUDA contexts, by id"}, self.contexts, Layout::compact);
        });
        visit.line();
        visit.table_if_any({"threads", "the threads that have a name", AtMost{max_threads}},
                           self.threads, Layout::compact);
        visit.line();
        visit.table({"sites", "distinct (stack, API, kind, device), in order of first appearance"},
                    self.sites, Layout::lines);
        visit.line();
        visit.table({"stacks", "the first stands for none", AtLeast{1}}, self.stacks,
                    Layout::lines);
        visit.line();
        visit.table({"frames", "of the stacks"}, self.frames, Layout::lines);
        visit.line();
        visit.table_if_any({"python_frames", "the first stands for none", AtLeast{2}},
                           self.python_frames, Layout::lines);
        visit.line();
        visit.table(
            {"modules", "objects that the process had loaded; the first stands for an unknown one",
             AtLeast{1}},
            self.modules, Layout::lines);
        visit.line();
        visit.table({"ooms", "the first allocations that failed", AtMost{max_ooms}}, self.ooms,
                    Layout::lines);
        visit.number({"oom_count", "how many there were"}, self.oom_count);
        visit.line();
        visit.table({"marks", "the first marks", AtMost{max_marks}}, self.marks, Layout::lines);
        visit.number({"mark_count", "how many there were"}, self.mark_count);
        visit.line();
        visit.table_if_any(
            {"scopes",
             "memory inside the program's scopes: one row for each path of names, parents before "
             "their children. Device memory only, all devices together",
             AtMost{max_scopes}},
            self.scopes, Layout::lines);
        visit.line();
        visit.object_if_any({"unbalanced_scopes", "begins and ends that do not match"},
                            self.unbalanced_scopes);
        visit.line();
        visit.table_if_any(
            {"steps",
             "whether memory grows from step to step, for each kind of step; a "
             "scope inside another one that has 8 steps or more does not count. All bytes are what "
             "is allocated at the end of a step, all devices together",
             AtMost{max_steps}},
            self.steps, Layout::lines);
        visit.number_if_known({"step_kinds_left_out",
                               "how many kinds of step were not followed, or not to their end: 64 "
                               "are, those with fewer than 8 steps give way to later ones. Absent "
                               "where there cannot have been as many",
                               Newer{}},
                              self.step_kinds_left_out);
        visit.line();
        visit.table_if_any({"labels", "the program's names for memory", AtMost{max_labels}},
                           self.labels, Layout::lines);
        visit.line();
        visit.table_if_any({"nn_modules",
                            "stacks of calls of PyTorch's nn.Modules, parents before their "
                            "children: which of them allocated the tensors. What backward "
                            "allocates is that of the call whose forward it belongs to. And "
                            "nn.Modules with what their labels name"},
                           self.nn_modules, Layout::lines);
        visit.line();
        visit.table_if_any(
            {"largest_live", "the largest allocations that are live at the end, largest first",
             AtMost{LiveAllocation::max_entries}},
            self.largest_live, Layout::lines);
        visit.line();
        visit.table({"missed", "what memlab could not see or serve, one entry per reason"},
                    self.missed, Layout::lines);
        visit.line();
        visit.object_if_known({"coverage",
                               "whether the driver's own records were compared with the recording, "
                               "and what bypassed memlab"},
                              self.coverage);
        visit.line();
        visit.object(
            {"integrity", "signs that the recording has holes; all 0 and false in one without"},
            self.integrity);
        visit.line();
        visit.object({"log", "what became of the event log"}, self.log);
    }
    bool operator==(const Report&) const = default;
};

}  // namespace memlab::model
