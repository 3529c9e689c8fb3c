// The CI gate: compares the measurements of a run with limits. Every limit is applied to every
// process and GPU that it concerns and gives a verdict; a limit that applies to nothing is a
// problem, never a pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "report/check/baseline.hpp"
#include "report/check/limit.hpp"
#include "report/check/measure.hpp"
#include "report/lacks.hpp"
#include "report/runs/collection.hpp"
#include "report/runs/ranks.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/views/suppressions.hpp"

namespace memlab::report::check {

/// A process of the run, ready to be measured.
struct Process {
    std::string file;        ///< it was read from
    std::string name;        ///< "rank 0", "train.py": the same in every run, unique within one
    std::string unfinished;  ///< why the recording has no end ("was cut off after 3 s"); or empty
    std::vector<report::Lack> lacks;
    std::uint64_t pid = 0;
    report::Summary summary;
    std::unique_ptr<report::Resolver> resolver;
    const std::vector<report::Suppression>* suppressions = nullptr;
};

/// What is measured of the processes, and how.
struct ProcessOptions {
    report::Symbolizer* symbolizer = nullptr;  ///< null: sites are shown as module and offset
    std::optional<std::uint64_t> device;       ///< only this GPU
    bool frameworks =
        false;  ///< what their caches hold, where seen from inside, in place of the GPU
    report::FrameSkips skips{};                       ///< what no place is
    std::vector<report::Suppression> suppressions{};  ///< memory that may be live at the end
};

/// `run` and `options` must outlive the result.
std::vector<Process> prepare_processes(const report::RunCollection& run,
                                       const ProcessOptions& options);

enum class Verdict : std::uint8_t {
    kept,
    exceeded,
    shown,        ///< has no limit
    recorded,     ///< written to the baseline, not compared with the old one
    no_baseline,  ///< skipped: Options::missing_baseline_passes
    unknown,      ///< could not be checked; the reason is among the problems
};

/// "ok", "EXCEEDED", ...
const char* name_of(Verdict verdict);

struct Row {
    std::size_t process = 0;  ///< index into the processes
    Metric metric = Metric::peak_allocated;
    Subject subject;
    std::optional<Limit> limit;  ///< none: shown only
    Measurement measured;
    std::optional<Figure> allowed;
    std::optional<Figure> baseline;
    Verdict verdict = Verdict::shown;
};

struct Outcome {
    std::vector<Row> rows;  ///< by process, then by GPU (rows of the whole process last)
    std::vector<std::string> problems;  ///< why not every limit was checked: one line each
    std::vector<std::string> notes;

    std::size_t count(Verdict verdict) const;
    /// 1 when a limit is exceeded, else 2 when there are problems, else 0.
    int exit_code() const;
};

struct Options {
    const Baseline* baseline = nullptr;  ///< null: none was given
    std::string baseline_name;           ///< for messages
    bool missing_baseline_passes = false;
    bool update = false;                         ///< relative limits are recorded, not checked
    std::vector<report::Lack> lacks;             ///< of the run, beside those of its processes
    std::vector<report::RankRow> ranks;          ///< `member`: index into the processes
    std::set<report::Lack::Kind> allowed_lacks;  ///< a note, not a problem
};

/// The kinds of lacks of a recording that does not go to the end of its process.
const std::set<report::Lack::Kind>& unfinished_kinds();

/// Why a run is no baseline ("FILE: as a baseline ..."); empty: it is one.
std::string baseline_problem(const std::vector<Process>& processes,
                             const std::vector<report::Lack>& lacks,
                             const std::set<report::Lack::Kind>& allowed);

/// Throws std::bad_alloc only.
Outcome check(const std::vector<Process>& processes, const std::vector<Limit>& limits,
              const Options& options);

/// The figures of a run for a baseline: every metric of whole processes, and those of the sites,
/// scopes and kinds in `limits`.
std::vector<BaselineFigure> baseline_figures(const std::vector<Process>& processes,
                                             const std::vector<Limit>& limits);

}  // namespace memlab::report::check
