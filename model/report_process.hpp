// A report's facts about the process and about the recording itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/iso_time.hpp"
#include "model/report_shape.hpp"

namespace memlab::model {

struct Process {
    std::uint64_t pid = 0;
    std::uint64_t parent_pid = 0;
    std::string executable = {};
    std::vector<std::string> arguments = {};
    std::string host = {};
    std::uint64_t start_wall_ns = 0;
    std::uint64_t duration_ns = 0;  ///< up to the latest time known
    /// Time of the last event, if memlab-run saw that the process ran longer; else 0.
    std::uint64_t recorded_ns = 0;
    bool recording = false;   ///< it runs and is still writing the log that this was read from
    std::string ended = {};   ///< "exit", "quick_exit", "cut off", or "running" in a snapshot
    std::string signal = {};  ///< "SIGKILL", if memlab-run saw how it died; else empty
    std::optional<std::int64_t> exit_code = {};  ///< if it is known
    bool started_late = false;
    Named<std::string> ranks = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("pid", self.pid);
        visit.number("parent_pid", self.parent_pid);
        visit.text("executable", self.executable);
        visit.texts("arguments", self.arguments);
        visit.text("host", self.host);
        visit.number("start_wall_ns", self.start_wall_ns);
        visit.for_others(
            [&self](auto& others) { others.text("start_iso8601", iso_time(self.start_wall_ns)); });
        visit.number("duration_ns", self.duration_ns);
        visit.number_if_any("recorded_ns", self.recorded_ns);
        visit.text("ended", self.ended);
        visit.text_if_any("signal", self.signal);
        visit.natural_if_any("exit_code", self.exit_code);
        visit.flag("started_late", self.started_late);
        visit.named_texts("ranks", self.ranks);
    }
    bool operator==(const Process&) const = default;
};

/// A CUDA context.
struct Context {
    std::uint64_t id = 0;
    std::uint64_t device = 0;
    bool primary = false;
    std::optional<std::uint64_t> lost_time_ns = {};  ///< when it was destroyed or reset

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("id", self.id);
        visit.number("device", self.device);
        visit.flag("primary", self.primary);
        visit.number_or_null("lost_time_ns", self.lost_time_ns);
    }
    bool operator==(const Context&) const = default;
};

/// A thread that has a name.
struct Thread {
    std::uint64_t id = 0;  ///< the kernel's
    std::string name = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("id", self.id);
        visit.text("name", self.name);
    }
    bool operator==(const Thread&) const = default;
};

/// Something that memlab could not record or serve, and why.
struct Missed {
    std::string reason = {};
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t first_time_ns = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("reason", self.reason);
        visit.number("count", self.count);
        visit.number("bytes", self.bytes);
        visit.number("first_time_ns", self.first_time_ns);
    }
    bool operator==(const Missed&) const = default;
};

/// Memory that bypassed memlab, as found by the audit, or why there was no audit.
struct Coverage {
    struct Bypassed {
        std::uint64_t device = 0;
        std::string kind = {};
        std::string api = {};   ///< empty: unknown
        std::size_t stack = 0;  ///< index into Report::stacks; 0: none
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::uint64_t first_time_ns = 0;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number("device", self.device);
            visit.text("kind", self.kind);
            visit.text("api", self.api);
            visit.index("stack", self.stack, Table::stacks);
            visit.number("count", self.count);
            visit.number("bytes", self.bytes);
            visit.number("first_time_ns", self.first_time_ns);
        }
        bool operator==(const Bypassed&) const = default;
    };
    bool audited = false;
    std::string because = {};  ///< why there was no audit, or only part of one
    std::string cupti = {};    ///< version and file; empty: none
    std::uint64_t driver_count = 0;
    std::uint64_t driver_bytes = 0;
    std::uint64_t lost_records = 0;
    std::uint64_t bypassed_count = 0;
    std::uint64_t bypassed_bytes = 0;
    std::vector<Bypassed> bypassed = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.flag("audited", self.audited);
        visit.text("because", self.because);
        visit.text("cupti", self.cupti);
        visit.number("driver_count", self.driver_count);
        visit.number("driver_bytes", self.driver_bytes);
        visit.number("lost_records", self.lost_records);
        visit.number("bypassed_count", self.bypassed_count);
        visit.number("bypassed_bytes", self.bypassed_bytes);
        visit.table("bypassed", self.bypassed, Layout::lines);
    }
    bool operator==(const Coverage&) const = default;
};

/// Indications of missing records.
struct Integrity {
    std::uint64_t unmatched_frees = 0;
    std::uint64_t unmatched_segment_frees = 0;
    std::uint64_t overwritten_allocations = 0;
    std::uint64_t overwritten_segments = 0;
    bool incomplete = false;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("unmatched_frees", self.unmatched_frees);
        visit.number("unmatched_segment_frees", self.unmatched_segment_frees);
        visit.number("overwritten_allocations", self.overwritten_allocations);
        visit.number("overwritten_segments", self.overwritten_segments);
        visit.flag("incomplete", self.incomplete);
    }
    bool operator==(const Integrity&) const = default;
};

struct LogInfo {
    std::uint64_t events = 0;
    std::uint64_t dropped = 0;
    std::string stopped_because = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("events", self.events);
        visit.number("dropped", self.dropped);
        visit.text("stopped_because", self.stopped_because);
    }
    bool operator==(const LogInfo&) const = default;
};

}  // namespace memlab::model
