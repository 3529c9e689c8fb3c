// What a recording lacks, and what that makes uncertain. Every view prints it, every JSON document
// has it, and `check` proves nothing where it matters: all ask find_lacks().
//
// A report of an older memlab may not say whether something is missing: then that is unknown, which
// is never taken for complete.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/report.hpp"

namespace memlab::report {

struct Lack {
    enum class Kind : std::uint8_t {
        started_late,  ///< CUDA was in use before
        damaged,       ///< the event log is
        running,       ///< the process still runs, or this is a snapshot of it
        cut_off,       ///< no end: killed, _exit, exec
        stopped,       ///< the recording stopped while the program went on
        gap,           ///< single events are missing, their sums are not
        event_log,     ///< the report is here, its event log cannot be read
        missed,        ///< memory that memlab says it did not record
        bypassed,      ///< memory that the audit found and memlab did not record
        audit,         ///< the audit itself has holes
        unseen,        ///< frees without their allocations, allocations without their frees
        order,         ///< times that decrease
        overflow,      ///< sums beyond 64 bits
        host_memory,   ///< the host had none left for the figures
        scopes,        ///< begins and ends that do not match, or were not followed
        steps,         ///< kinds of steps that were not followed
        processes,     ///< of a run: memlab-run saw them
        ranks,         ///< of a run: its launcher promised them
    };

    Kind kind = Kind::cut_off;
    bool known = true;                      ///< false: the recording does not say
    std::string text;                       ///< whole sentences
    std::optional<std::uint64_t> from_ns;   ///< the stretch that is missing, where it is known
    std::optional<std::uint64_t> until_ns;  ///< exclusive; none: to the end

    /// The one shape that every JSON document has of it.
    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit);
};

/// What is the same for all of a kind.
struct LackInfo {
    Lack::Kind kind;
    std::string_view name;       ///< of `check --allow NAME` and of JSON; never changes
    std::string_view uncertain;  ///< what it makes uncertain
    std::string_view advice;     ///< what to do; empty: nothing
};
/// All kinds, in their order.
inline constexpr std::array lack_infos = {
    LackInfo{Lack::Kind::started_late, "started-late",
             "what was allocated before: all figures are at least",
             "load memlab with the program (memlab-run)"},
    LackInfo{Lack::Kind::damaged, "damaged", "everything after the damage", "record again"},
    LackInfo{Lack::Kind::running, "running", "everything after this moment",
             "record it to its end"},
    LackInfo{Lack::Kind::cut_off, "cut-off", "everything after the last event",
             "record it to its end"},
    LackInfo{Lack::Kind::stopped, "stopped", "everything after the stop",
             "record with more room for the event log (MEMLAB_LOG_LIMIT, disk space)"},
    LackInfo{Lack::Kind::gap, "gap",
             "single events and what was live at a moment; sums and peaks are exact",
             "record with more room for the event log (MEMLAB_LOG_LIMIT, disk space)"},
    LackInfo{Lack::Kind::event_log, "event-log",
             "single events, and what needs them; the figures of the report are exact",
             "copy it again, or read it with the memlab-report of the memlab that recorded it"},
    LackInfo{Lack::Kind::missed, "missed", "all figures: they are at least",
             "record again where nothing is missed"},
    LackInfo{Lack::Kind::bypassed, "bypassed", "all figures: they are at least",
             "see the audit of memlab-report FILE"},
    LackInfo{Lack::Kind::audit, "audit", "what bypassed memlab, and what kernels did",
             "record again"},
    LackInfo{Lack::Kind::unseen, "unseen-frees", "all figures: they may be too low or too high",
             "record again, so that memlab sees all of the program's calls"},
    LackInfo{Lack::Kind::order, "time-order", "times, and what was held at a time", "record again"},
    LackInfo{Lack::Kind::overflow, "overflow", "all figures", "record again"},
    LackInfo{Lack::Kind::host_memory, "host-memory", "everything after that moment",
             "record again"},
    LackInfo{Lack::Kind::scopes, "scopes", "figures of scopes and steps",
             "end each scope in the thread that began it"},
    LackInfo{Lack::Kind::steps, "steps", "growth per step", "use fewer names for marks and scopes"},
    LackInfo{Lack::Kind::processes, "processes",
             "what these processes did: sums and maxima are at least", "copy all files of the run"},
    LackInfo{Lack::Kind::ranks, "ranks", "what these ranks did: sums and maxima are at least",
             "copy the files of all ranks"}};

constexpr const LackInfo& info(Lack::Kind kind) {
    return lack_infos[static_cast<std::size_t>(kind)];
}
/// Of all kinds, ended by a zero byte each.
constexpr std::array<const char*, lack_infos.size()> lack_names() {
    std::array<const char*, lack_infos.size()> names{};
    for (std::size_t i = 0; i < names.size(); ++i) {
        names[i] = lack_infos[i].name.data();
    }
    return names;
}
template <typename Self, typename Visitor>
void Lack::fields(Self& self, Visitor& visit) {
    visit.text({"name", "what is missing", model::OneOf<lack_infos.size()>{lack_names()}},
               std::string(info(self.kind).name));
    visit.text({"uncertain", "what that makes uncertain"}, std::string(info(self.kind).uncertain));
    visit.flag({"known", "false: recorded by an older memlab, which does not say whether or when"},
               self.known);
    visit.number_or_null({"from_ns", "where the missing stretch starts; null: not known"},
                         self.from_ns);
    visit.number_or_null({"until_ns", "where it ends; null: with the process, or not known"},
                         self.until_ns);
    visit.text({"text", "sentences that every view prints"}, self.text);
}
/// The member `lacks` of an object.
template <typename Visitor>
void lack_fields(const std::vector<Lack>& lacks, Visitor& visit) {
    visit.list({"lacks", "what is missing; empty: nothing"}, lacks);
}

/// In the order of Lack::Kind. Those of a run's processes come from RunCollection.
std::vector<Lack> find_lacks(const model::Report& report);
/// The same without the end that a process lacks because exec replaced its program: it is complete.
std::vector<Lack> find_lacks_of_replaced(const model::Report& report);

/// "stopped after 72.34 ms (disk full) and lacks 3 later events": where recording_stopped().
std::string stop_text(const model::Report& report);
/// "An allocation was not recorded (2 times, 3.00 MiB).".
std::string missed_text(const model::Missed& missed);

/// Their sentences.
std::vector<std::string> sentences(const std::vector<Lack>& lacks);

/// The time from which on nothing is known: the recording stopped, or its log is damaged. None: all
/// is known to the end.
std::optional<std::uint64_t> known_until(const model::Report& report);

/// True if the recording stopped before its process ended. Never of a report that the process wrote
/// itself at its end: that one has everything.
bool recording_stopped(const model::Report& report);

/// The time that final values are of: "at the end", "when the recording stopped", "where the log is
/// damaged", "at the snapshot", "now"; the second fits into a column, with `ended` for the first.
std::string moment_text(const model::Report& report);
std::string moment_column(const model::Report& report, std::string_view ended = "at the end");

}  // namespace memlab::report
