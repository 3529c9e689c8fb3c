// Recordings as they were at moments: what was live then.
//
// A log is aggregated up to the moment. Where it is aggregated into its report anyway, the reports
// of moments are made on the way, and it is read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/report.hpp"
#include "report/reading/reader.hpp"

namespace memlab::report {

/// Parses a time: "1.5s", "200ms", "3us", "17ns" since the start, "peak" (of `device`, else of the
/// first used GPU, or of the greatest kind that its curves do not include), "end", or the name of a
/// mark (the first one). None for other text, with an error message in `problem`.
std::optional<std::uint64_t> parse_moment(std::string_view text, const model::Report& report,
                                          std::optional<std::uint64_t> device,
                                          std::string* problem);

/// The time that a moment means in any recording: not that of a mark, which may have such a name.
std::optional<std::uint64_t> time_of_moment(const std::string& moment);

/// Makes the reports of moments while a log is aggregated into its own. Thread-safety: none.
class MomentCollector {
  public:
    /// As for parse_moment(). Of the peak and the end the whole report has all.
    explicit MomentCollector(const std::vector<std::string>& moments);
    explicit MomentCollector(std::uint64_t time_ns) : asked_{{"", time_ns, std::nullopt}} {}

    /// For read_report(). `next`: what the log is read into besides; it must forward the records.
    LogSinkFactory sink_factory(const LogSinkFactory& next = {});

    /// False: what is asked for needs no log.
    bool any() const { return !asked_.empty(); }
    /// The log that was read last; empty: none.
    const std::string& log() const { return log_; }
    /// The report at that time, which one of the moments was, of a log that was read. None: see
    /// report_at().
    std::optional<model::Report> at(const std::string& log, std::uint64_t time_ns) const;

  private:
    class Sink;
    struct Moment {
        std::string mark;                      ///< that it is the first of; empty: a time
        std::optional<std::uint64_t> time_ns;  ///< none: the mark has not been reached
        std::optional<model::Report> report;
    };

    std::string log_;
    std::vector<Moment> asked_;
    std::vector<Moment> found_;
};

/// The report derived from an event log up to `time_ns`: its "live" is the live memory at that
/// time. None if the log cannot be read, or lacks the events before that time. `named`: the report
/// of the whole log, whose names (memlab-report symbolize) no log has. `collected` may have it. May
/// throw std::bad_alloc.
std::optional<model::Report> report_at(
    const std::string& log, std::uint64_t time_ns, const model::Report& named,
    const MomentCollector& collected = MomentCollector(std::vector<std::string>()));
/// Why it is none for `moment` ("400ms"): "what; what to do".
std::string not_replayable(const model::Report& report, const std::string& moment);

}  // namespace memlab::report
