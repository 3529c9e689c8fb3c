#include "report/lacks.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/text/units.hpp"
#include "trace/folded_name.hpp"

namespace memlab::report {

namespace {

using Kind = Lack::Kind;

std::string with_full_stop(std::string text) {
    text += text.empty() || text.back() == '.' ? "" : ".";
    return text;
}

/// Whether there may be kinds of steps beyond those that are followed. A report that says how many
/// were left out does not get here.
bool may_have_left_out_steps(const model::Report& report) {
    std::set<std::string> families;
    for (const model::Mark& mark : report.marks) {
        families.insert(trace::folded_name(mark.name));
    }
    return report.scopes.size() + families.size() >= model::Report::max_steps ||
           report.mark_count > report.marks.size();
}

/// Of a log that is being written, and of a snapshot.
std::string taken_text(const model::Process& process) {
    return "Taken while the program ran, at " +
           format_wall_time(process.start_wall_ns + process.duration_ns) + ", " +
           format_duration(process.duration_ns) +
           " after its start: all figures are those of that moment.";
}

class Finder {
  public:
    Finder(const model::Report& report, bool replaced) : report_(report), replaced_(replaced) {}

    std::vector<Lack> run() {
        process();
        log();
        memory();
        figures();
        return std::move(lacks_);
    }

  private:
    Lack& add(Kind kind, std::string text) {
        Lack& lack = lacks_.emplace_back();
        lack.kind = kind;
        lack.text = std::move(text);
        return lack;
    }

    void process() {
        const model::Process& process = report_.process;
        const std::uint64_t recorded =
            process.recorded_ns != 0 ? process.recorded_ns : process.duration_ns;
        if (process.started_late) {
            add(Kind::started_late,
                "CUDA was in use before memlab saw it: earlier allocations are missing.");
        }
        if (!report_.log.damage.empty()) {
            add(Kind::damaged, report_.log.damage).from_ns = recorded;
        } else if ((process.recording && !recording_stopped(report_)) ||
                   process.ended == "running") {
            add(Kind::running, taken_text(process)).from_ns = recorded;
        } else if (process.ended == "cut off" && !recording_stopped(report_) && !replaced_) {
            add(Kind::cut_off,
                "The recording stops without an end (killed, _exit or exec); all figures are those "
                "of its last event.")
                .from_ns = recorded;
        }
    }

    void log() {
        const model::LogInfo& log = report_.log;
        if (recording_stopped(report_)) {
            Lack& lack = add(Kind::stopped, "The recording " + stop_text(report_) +
                                                ". What the program did after that is not in it: "
                                                "its later peaks, and what it held at its end, are "
                                                "not known.");
            lack.from_ns = known_until(report_);
            lack.known = log.stopped_time_ns.has_value();
        } else if (log.dropped != 0 || !log.stopped_because.empty()) {
            std::string text = "The event log lost " + format_plural(log.dropped, "event");
            text += log.stopped_because.empty() ? "" : ": " + log.stopped_because;
            add(Kind::gap, with_full_stop(std::move(text))).from_ns = log.stopped_time_ns;
        }
        if (log.gap) {
            const bool known = log.gap->from_ns && log.gap->to_ns;
            Lack& lack = add(
                Kind::gap,
                known ? "The event log keeps its beginning, up to " +
                            format_duration(*log.gap->from_ns) + ", and its newest part, from " +
                            format_duration(*log.gap->to_ns) +
                            " on (MEMLAB_LOG_LIMIT): single events in between are missing, their "
                            "sums are not."
                      : "The event log keeps its beginning and its newest part "
                        "(MEMLAB_LOG_LIMIT): single events in between are missing, their sums are "
                        "not.");
            lack.from_ns = log.gap->from_ns;
            lack.until_ns = log.gap->to_ns;
        }
        if (!log.unreadable.empty()) {
            add(Kind::event_log, log.unreadable);
        }
    }

    void memory() {
        for (const model::Missed& missed : report_.missed) {
            if (missed.figures == "complete") {
                continue;
            }
            add(Kind::missed, missed_text(missed)).known = !missed.figures.empty();
        }
        const model::Coverage& coverage = report_.coverage;
        if (coverage.bypassed_count != 0) {
            add(Kind::bypassed, format_plural(coverage.bypassed_count, "allocation") + " of " +
                                    format_bytes(coverage.bypassed_bytes) +
                                    " bypassed memlab: the figures are without them.");
        }
        if (coverage.lost_records != 0) {
            add(Kind::audit, "CUPTI lost " + format_plural(coverage.lost_records, "record") +
                                 ": its data on allocations and kernels is incomplete.");
        }
        const model::Integrity& integrity = report_.integrity;
        if (const std::uint64_t frees = model::saturating_add(integrity.unmatched_frees,
                                                              integrity.unmatched_segment_frees)) {
            add(Kind::unseen,
                format_plural(frees, "free") + " of memory whose allocation was not seen.");
        }
        if (const std::uint64_t reused = model::saturating_add(integrity.overwritten_allocations,
                                                               integrity.overwritten_segments)) {
            add(Kind::unseen, format_plural(reused, "allocation") +
                                  " ended by a free that was not seen: their memory was reused.");
        }
    }

    void figures() {
        const model::Integrity& integrity = report_.integrity;
        if (integrity.earlier_times != 0) {
            add(Kind::order, format_plural(integrity.earlier_times, "event") +
                                 " with a time before that of the event in front: times, and what "
                                 "was held at a time, are not reliable.");
        }
        if (integrity.overflowed) {
            add(Kind::overflow,
                "The bytes of all allocations do not fit into 64 bits: those beyond are left out. "
                "The file is damaged, or no recording.");
        }
        if (integrity.incomplete) {
            add(Kind::host_memory, "The host ran out of memory: figures stop at that moment.");
        }
        const model::UnbalancedScopes& scopes = report_.unbalanced_scopes;
        if (scopes.ends_without_begin != 0 || scopes.ended_with_thread != 0) {
            std::string text;
            if (scopes.ends_without_begin != 0) {
                text = format_plural(scopes.ends_without_begin, "end") +
                       " of a scope without its start";
            }
            if (scopes.ended_with_thread != 0) {
                text += (text.empty() ? "" : ", ") +
                        format_plural(scopes.ended_with_thread, "scope") +
                        " left open by a thread that ended";
            }
            add(Kind::scopes, text + ": the figures are those of what matched.");
        }
        if (scopes.too_many_open != 0) {
            add(Kind::scopes, format_plural(scopes.too_many_open, "scope") +
                                  " not followed: too many were open at once.");
        }
        if (report_.step_kinds_left_out) {
            if (*report_.step_kinds_left_out != 0) {
                add(Kind::steps,
                    format_plural(*report_.step_kinds_left_out, "kind") +
                        " of steps not followed: " + std::to_string(model::Report::max_steps) +
                        " others were. Whether memory grows from one of theirs to the "
                        "next is not known.");
            }
        } else if (may_have_left_out_steps(report_)) {
            add(Kind::steps,
                "This recording has so many marks and scopes that kinds of steps may not have been "
                "followed, and does not say.")
                .known = false;
        }
    }

    const model::Report& report_;
    const bool replaced_;
    std::vector<Lack> lacks_;
};

}  // namespace

std::string stop_text(const model::Report& report) {
    const model::Process& process = report.process;
    const std::uint64_t latest =
        process.recorded_ns != 0 ? process.recorded_ns : process.duration_ns;
    std::string text = std::string("stopped ") +
                       (report.log.stopped_time_ns ? "after " : "at the latest after ") +
                       format_duration(report.log.stopped_time_ns.value_or(latest));
    if (!report.log.stopped_because.empty()) {
        text += " (" + report.log.stopped_because + ")";
    }
    if (report.log.dropped != 0) {
        text += " and lacks " + format_plural(report.log.dropped, "later event");
    }
    return text;
}

std::string missed_text(const model::Missed& missed) {
    std::string text = missed.reason.empty() ? "Something was missed" : missed.reason;
    if (text.ends_with('.')) {
        text.pop_back();
    }
    text += missed.count == 1 ? " (once" : " (" + format_count(missed.count) + " times";
    return text + (missed.bytes == 0 ? ")." : ", " + format_bytes(missed.bytes) + ").");
}

std::vector<Lack> find_lacks(const model::Report& report) {
    return Finder(report, false).run();
}

std::vector<Lack> find_lacks_of_replaced(const model::Report& report) {
    return Finder(report, true).run();
}

std::vector<std::string> sentences(const std::vector<Lack>& lacks) {
    std::vector<std::string> all;
    all.reserve(lacks.size());
    for (const Lack& lack : lacks) {
        all.push_back(lack.text);
    }
    return all;
}

std::optional<std::uint64_t> known_until(const model::Report& report) {
    const model::Process& process = report.process;
    const std::uint64_t recorded =
        process.recorded_ns != 0 ? process.recorded_ns : process.duration_ns;
    if (recording_stopped(report)) {
        return std::min(report.log.stopped_time_ns.value_or(recorded), recorded);
    }
    // A log that a kill cut off has all that happened before.
    return report.log.damage.empty() ? std::nullopt : std::optional(recorded);
}

bool recording_stopped(const model::Report& report) {
    const bool lost = report.log.dropped != 0 || !report.log.stopped_because.empty();
    // A report that the process wrote itself at its end is complete, even if its log is not. Only
    // one that was made of the log, now or by `recover`, knows when that stopped.
    return lost && (report.process.ended == "cut off" || report.from_log ||
                    report.log.stopped_time_ns.has_value());
}

namespace {

/// What final values are of, in a sentence and in the heading of a column.
struct Moment {
    std::string_view text;
    std::string_view column;
};

Moment last_moment(const model::Report& report, std::string_view ended) {
    if (recording_stopped(report)) {
        return {"when the recording stopped", "at the stop"};
    }
    // Not where only something follows on the end.
    if (!report.log.damage.empty() && report.process.ended == "cut off") {
        return {"where the log is damaged", "at damage"};
    }
    if (report.process.recording) {
        return {"now", "now"};
    }
    return report.process.ended == "running" ? Moment{"at the snapshot", "at snapshot"}
                                             : Moment{"at the end", ended};
}

}  // namespace

std::string moment_text(const model::Report& report) {
    return std::string(last_moment(report, {}).text);
}

std::string moment_column(const model::Report& report, std::string_view ended) {
    return std::string(last_moment(report, ended).column);
}

}  // namespace memlab::report
