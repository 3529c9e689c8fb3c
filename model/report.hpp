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
#include "model/report_process.hpp"
#include "model/report_scopes.hpp"
#include "model/report_shape.hpp"

namespace memlab::model {

inline constexpr std::uint64_t schema_version = 1;

struct Oom {
    struct PoolBytes {
        std::uint64_t reserved = 0;
        std::uint64_t active = 0;
        std::uint64_t allocated = 0;
        std::uint64_t largest_free = 0;
        std::uint64_t large_free = 0;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number("reserved_bytes", self.reserved);
            visit.number("active_bytes", self.active);
            visit.number("allocated_bytes", self.allocated);
            visit.number("largest_free_bytes", self.largest_free);
            visit.number("large_free_bytes", self.large_free);
        }
        bool operator==(const PoolBytes&) const = default;
    };
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
    std::vector<std::string> explanation = {};  ///< empty in reports of earlier versions

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("time_ns", self.time_ns);
        visit.number("device", self.device);
        visit.extra("context", self.context);
        visit.number("thread", self.thread);
        visit.text("api", self.api);
        visit.index("stack", self.stack, Table::stacks);
        visit.text("kind", self.kind);
        visit.number("requested_bytes", self.requested_bytes);
        visit.number("device_free_bytes", self.device_free_bytes);
        visit.number("device_total_bytes", self.device_total_bytes);
        visit.for_others(
            [&self](auto& others) { others.number_or_null("limit_bytes", self.limit_bytes); });
        visit.number("largest_free_block_bytes", self.largest_free_block_bytes);
        visit.signed_number("error", self.error);
        visit.object("current", self.current);
        visit.for_others([&self](auto& others) {
            others.object("pool", self.pool);
            others.named_numbers("kinds", self.kinds);
        });
        visit.group("holders", [&self](auto& holders) {
            Holders::fields(self.holders, holders, [](auto& share, auto& item) {
                Holders::Share::fields(share, item);
                item.extra("allocations", share.allocations);
                item.list_if_any("labels", share.labels);
            });
        });
        visit.list_if_any("group_limits", self.group_limits);
        visit.texts_if_known("explanation", self.explanation);
    }
    bool operator==(const Oom&) const = default;
};

struct Report {
    // In one source: each that copies, moves or ends a report would otherwise compile these for all the vectors within.
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
    std::vector<Label> labels = {};
    std::vector<LiveAllocation> largest_live = {};
    std::vector<Missed> missed = {};
    Coverage coverage = {};
    Integrity integrity = {};
    LogInfo log = {};
    bool from_log = false;  ///< derived from an event log; the process may have written no report

    /// The name of a thread by the kernel's id; null: it has none.
    const std::string* thread_name(std::uint64_t id) const {
        const auto found = std::find_if(threads.rbegin(), threads.rend(),
                                        [id](const Thread& thread) { return thread.id == id; });
        return found == threads.rend() ? nullptr : &found->name;
    }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant("format", "memlab-report");
        visit.constant("version", schema_version);
        visit.text("memlab_version", self.memlab_version);
        visit.line();
        visit.object("process", self.process);
        visit.line();
        visit.named_texts("options", self.options);
        visit.line();
        visit.table("devices", self.devices, Layout::lines);
        visit.line();
        visit.for_others(
            [&self](auto& others) { others.table("contexts", self.contexts, Layout::compact); });
        visit.line();
        visit.table_if_any("threads", self.threads, Layout::compact);
        visit.line();
        visit.table("sites", self.sites, Layout::lines);
        visit.line();
        visit.table("stacks", self.stacks, Layout::lines);
        visit.line();
        visit.table("frames", self.frames, Layout::lines);
        visit.line();
        visit.table_if_any("python_frames", self.python_frames, Layout::lines);
        visit.line();
        visit.table("modules", self.modules, Layout::lines);
        visit.line();
        visit.table("ooms", self.ooms, Layout::lines);
        visit.number("oom_count", self.oom_count);
        visit.line();
        visit.table("marks", self.marks, Layout::lines);
        visit.number("mark_count", self.mark_count);
        visit.line();
        visit.table_if_any("scopes", self.scopes, Layout::lines);
        visit.line();
        visit.object_if_any("unbalanced_scopes", self.unbalanced_scopes);
        visit.line();
        visit.table_if_any("steps", self.steps, Layout::lines);
        visit.line();
        visit.table_if_any("labels", self.labels, Layout::lines);
        visit.line();
        visit.table_if_any("largest_live", self.largest_live, Layout::lines);
        visit.line();
        visit.table("missed", self.missed, Layout::lines);
        visit.line();
        visit.object_if_known("coverage", self.coverage);
        visit.line();
        visit.object("integrity", self.integrity);
        visit.line();
        visit.object("log", self.log);
    }
    bool operator==(const Report&) const = default;
};

}  // namespace memlab::model
