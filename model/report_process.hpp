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
    bool recording = false;  ///< it runs and is still writing the log that this was read from
    std::string ended = {};
    std::string signal = {};  ///< "SIGKILL", if memlab-run saw how it died; else empty
    std::optional<std::int64_t> exit_code = {};  ///< if it is known
    bool started_late = false;
    Named<std::string> ranks = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"pid", "its id"}, self.pid);
        visit.number({"parent_pid", "its parent's"}, self.parent_pid);
        visit.text({"executable", "absolute path"}, self.executable);
        visit.texts({"arguments", "of its command line"}, self.arguments);
        visit.text({"host", "the name of the machine"}, self.host);
        visit.number({"start_wall_ns", "when it started, since the Unix epoch"},
                     self.start_wall_ns);
        visit.for_others([&self](auto& others) {
            others.text({"start_iso8601", "the same moment in UTC, to the microsecond"},
                        iso_time(self.start_wall_ns));
        });
        visit.number({"duration_ns",
                      "until the process ended; when cut off, until the last record, unless "
                      "`memlab-run` saw the end"},
                     self.duration_ns);
        visit.number_if_any(
            {"recorded_ns", "until the last record, where `duration_ns` goes on for longer"},
            self.recorded_ns);
        visit.text({"ended",
                    "how the recording ended: `exit` is exit or return from main; `cut off`: "
                    "without an end (killed, `_exit`, exec); `running`: this is a snapshot, and "
                    "its figures are those of that moment",
                    one_of("exit", "quick_exit", "cut off", "running")},
                   self.ended);
        visit.text_if_any(
            {"signal",
             "`SIGKILL`, where `memlab-run` saw how a process ended whose recording was cut off"},
            self.signal);
        visit.natural_if_any(
            {"exit_code",
             "what the process gave to `exit` or returned from main, as its parent sees it; a "
             "handler of the program's that runs after memlab's may still change it. Not known of "
             "`quick_exit`; where the recording was cut off, what `memlab-run` saw",
             AtMost{255}},
            self.exit_code);
        visit.flag(
            {"started_late",
             "CUDA was in use before memlab saw it, so that earlier allocations are missing"},
            self.started_late);
        visit.named_texts({"ranks",
                           "the rank variables of torchrun, Open MPI, Slurm and the like that were "
                           "set, name to value"},
                          self.ranks);
    }
    bool operator==(const Process&) const = default;
};

/// A CUDA context.
struct Context {
    std::uint64_t id = 0;
    std::uint64_t device = 0;
    bool primary = false;
    std::optional<std::uint64_t> lost_time_ns = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"id", "its number"}, self.id);
        visit.number({"device", "the index of the device"}, self.device);
        visit.flag({"primary", "it is the device's primary context"}, self.primary);
        visit.number_or_null(
            {"lost_time_ns", "when it was destroyed or reset; null while it lived"},
            self.lost_time_ns);
    }
    bool operator==(const Context&) const = default;
};

/// A thread that has a name.
struct Thread {
    std::uint64_t id = 0;
    std::string name = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"id", "the kernel's number"}, self.id);
        visit.text({"name", "its name"}, self.name);
    }
    bool operator==(const Thread&) const = default;
};

/// Something that memlab could not record or serve, and why.
struct Missed {
    std::string reason = {};
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t first_time_ns = 0;
    std::string figures = {};  ///< empty: of a memlab that did not say

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"reason", "a full sentence"}, self.reason);
        visit.number({"count", "how many"}, self.count);
        visit.number({"bytes", "their sum"}, self.bytes);
        visit.number({"first_time_ns", "when first"}, self.first_time_ns);
        visit.text_if_any({"figures",
                           "what that leaves of the report's figures: `complete`: all memory is in "
                           "them; `at least`: memory may be missing, they are lower bounds. Absent "
                           "where the recording does not say",
                           one_of("complete", "at least")},
                          self.figures);
    }
    bool operator==(const Missed&) const = default;
};

/// Memory that bypassed memlab, as found by the audit, or why there was no audit.
struct Coverage {
    static constexpr std::size_t max_bypassed = 4096;
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
            visit.number({"device", "the index of the device"}, self.device);
            visit.text({"kind", "the kind of memory"}, self.kind);
            visit.text({"api", "the function that allocated; empty: unknown"}, self.api);
            visit.index({"stack", "the call stack"}, self.stack, Table::stacks);
            visit.number({"count", "allocations"}, self.count);
            visit.number({"bytes", "their sum"}, self.bytes);
            visit.number({"first_time_ns", "when first"}, self.first_time_ns);
        }
        bool operator==(const Bypassed&) const = default;
    };
    bool audited = false;
    std::string because = {};
    std::string cupti = {};
    std::uint64_t driver_count = 0;
    std::uint64_t driver_bytes = 0;
    std::uint64_t lost_records = 0;
    std::uint64_t bypassed_count = 0;
    std::uint64_t bypassed_bytes = 0;
    std::vector<Bypassed> bypassed = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.flag(
            {"audited",
             "every allocation in CUPTI's records of the driver was compared with the recording; "
             "false also without an audit (`MEMLAB_AUDIT`, `MEMLAB_CUPTI=on`)"},
            self.audited);
        visit.text({"because",
                    "in a sentence, why there was no audit, or what limits the one that was made"},
                   self.because);
        visit.text({"cupti", "version and file; empty: none was used"}, self.cupti);
        visit.number({"driver_count",
                      "the driver's allocations: memlab's own segments, and all that it recorded "
                      "without pooling"},
                     self.driver_count);
        visit.number({"driver_bytes", "their sum"}, self.driver_bytes);
        visit.number({"lost_records", "records that CUPTI says it lost"}, self.lost_records);
        visit.number({"bypassed_count", "allocations that reached the driver without memlab"},
                     self.bypassed_count);
        visit.number({"bypassed_bytes", "their sum"}, self.bypassed_bytes);
        visit.table({"bypassed", "one entry per device, kind, API and stack", AtMost{max_bypassed}},
                    self.bypassed, Layout::lines);
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
    std::uint64_t earlier_times = 0;
    bool overflowed = false;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number(
            {"unmatched_frees",
             "frees of memory whose allocation was not seen; expected when `started_late`"},
            self.unmatched_frees);
        visit.number({"unmatched_segment_frees", "the same for segments"},
                     self.unmatched_segment_frees);
        visit.number({"overwritten_allocations",
                      "allocations that ended because the memory was allocated again: a free that "
                      "was not seen"},
                     self.overwritten_allocations);
        visit.number({"overwritten_segments", "the same for segments"}, self.overwritten_segments);
        visit.flag(
            {"incomplete", "the host had no memory left for the figures; they stop at that moment"},
            self.incomplete);
        visit.number_if_any({"earlier_times",
                             "events with an earlier time than the event before them; the order "
                             "in the file counts",
                             Newer{}},
                            self.earlier_times);
        visit.flag_if_any({"overflowed",
                           "the bytes of all allocations do not fit into 64 bits, which only a "
                           "wrong file can have; those beyond are left out",
                           Newer{}},
                          self.overflowed);
    }
    bool operator==(const Integrity&) const = default;
};

/// Single events that a log with a ring lacks. Their times are known where more than its sums was
/// read.
struct LogGap {
    std::optional<std::uint64_t> from_ns = {};
    std::optional<std::uint64_t> to_ns = {};
    bool operator==(const LogGap&) const = default;
};

struct LogInfo {
    std::uint64_t events = 0;
    std::uint64_t dropped = 0;
    std::string stopped_because = {};
    std::optional<std::uint64_t> stopped_time_ns = {};
    std::string damage = {};
    using Gap = LogGap;
    std::optional<Gap> gap = {};  ///< only in a report that was made of a log
    std::string unreadable = {};  ///< a sentence on the log beside a report that was read

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"events", "how many went into this report"}, self.events);
        visit.number({"dropped", "how many the event log lost"}, self.dropped);
        visit.text({"stopped_because", "a sentence; empty when it never stopped"},
                   self.stopped_because);
        visit.number_if_known({"stopped_time_ns",
                               "when it stopped: what happened later is not in it. Absent where it "
                               "did not stop, or the report was not made of the log",
                               Newer{}},
                              self.stopped_time_ns);
        visit.text_if_any({"damage",
                           "a sentence on what is wrong with the event log that the report was "
                           "made of",
                           Newer{}},
                          self.damage);
    }
    bool operator==(const LogInfo&) const = default;
};

}  // namespace memlab::model
