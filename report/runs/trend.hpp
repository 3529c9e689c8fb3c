// How the memory of a program changed over many runs: a row for each, by start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/runs/collection.hpp"
#include "report/runs/process_stats.hpp"
#include "report/runs/run_documents.hpp"
#include "report/text/terminal.hpp"
#include "report/views/diff.hpp"

namespace memlab::report {

/// A run by its process with the largest allocated peak.
struct TrendRow {
    std::string source;  ///< the folder or file, as it was given
    std::uint64_t start_wall_ns = 0;
    std::string host;
    std::uint64_t processes = 0;
    std::uint64_t pid = 0;
    std::string program;
    std::uint64_t ooms = 0;
    ProcessStats stats;
    std::vector<Lack> lacks;
    std::optional<Change> change;  ///< of the allocated peak since the row before

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"source", "the folder or file, as it was given"}, self.source);
        visit.number({"start_wall_ns", "when the process started, since the Unix epoch"},
                     self.start_wall_ns);
        visit.text({"host", "the name of the machine"}, self.host);
        visit.number({"processes", "with CUDA; the others are of that with the largest peak"},
                     self.processes);
        visit.number({"pid", "its id"}, self.pid);
        visit.text({"program", "the script, where an interpreter runs one"}, self.program);
        visit.number({"ooms", "failed allocations"}, self.ooms);
        ProcessStats::fields(self.stats, visit);
        visit.signed_or_null(
            {"change_bytes", "of `allocated_peak_bytes` since the run before; null of the first"},
            self.change ? self.change->difference() : std::nullopt);
        lack_fields(self.lacks, visit);
    }
};

struct Trend {
    Level level = Level::driver;  ///< or framework
    std::vector<TrendRow> runs;   ///< by start
    FileErrors errors;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, "memlab-trend");
        visit.constant({"version", "of the format"}, 1);
        level_field(self.level, visit);
        visit.list({"runs", "by start"}, self.runs);
        error_fields(self.errors, visit);
    }
};

/// A row for each of `sources`: folders of runs, reports or event logs. `level`: driver or
/// framework; none: framework where every process's memory is seen at it. A run that several
/// sources hold has one row.
Trend make_trend(const std::vector<std::string>& sources, const std::optional<Level>& level);

std::string render_trend_text(const Trend& trend, const Style& style);
/// Trend. Ends with a newline.
std::string render_trend_json(const Trend& trend);

}  // namespace memlab::report
