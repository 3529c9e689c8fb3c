// The gate: what a run needed against what it may need. Every limit is held against every process
// and GPU that it applies to, and ends in a verdict; a limit that could not be held against
// anything is a problem, never a pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/check/baseline.hpp"
#include "report/check/limit.hpp"
#include "report/check/measure.hpp"
#include "report/runs/collection.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/views/suppressions.hpp"

namespace memlab::check {

/// A process of the run, ready to be measured.
struct Process {
    std::string file;  ///< that it was read from
    std::string name;  ///< "rank 0", "train.py": the same from run to run, unique within one
    std::string damage;
    std::string unfinished;  ///< why it does not tell all that the process did; or empty
    std::uint64_t pid = 0;
    report::Summary summary;
    std::unique_ptr<report::Resolver> resolver;
    const std::vector<report::Suppression>* suppressions = nullptr;
};

/// How processes are looked at.
struct Lens {
    report::Symbolizer* symbolizer = nullptr;  ///< null: sites are known by module and offset
    std::optional<std::uint64_t> device;       ///< only this GPU
    std::vector<report::Suppression> suppressions{};  ///< what may stay at the end
};

/// `run` and `lens` must outlive the result.
std::vector<Process> processes_of(const report::RunCollection& run, const Lens& lens);

enum class Verdict : std::uint8_t {
    kept,
    exceeded,
    shown,        ///< nobody limits it
    recorded,     ///< goes into the baseline: not judged by the old one
    no_baseline,  ///< passed over, as was asked for
    unknown,      ///< could not be judged: one of the problems says why
};

/// "ok", "EXCEEDED", ...
const char* name_of(Verdict verdict);

struct Row {
    std::size_t process = 0;  ///< index into the processes
    Metric metric = Metric::peak_allocated;
    Subject subject;
    std::optional<Limit> limit;  ///< none: only shown
    Measurement measured;
    std::optional<Figure> allowed;
    std::optional<Figure> baseline;
    Verdict verdict = Verdict::shown;
};

struct Outcome {
    std::vector<Row> rows;  ///< by process, then by GPU (what is of the whole process last)
    std::vector<std::string> problems;  ///< why it is not all proven: one line each
    std::vector<std::string> notes;

    std::size_t count(Verdict verdict) const;
    /// 1 when a limit is exceeded, else 2 when there are problems, else 0.
    int exit_code() const;
};

struct Options {
    const Baseline* baseline = nullptr;  ///< null: none was named
    std::string baseline_name;           ///< for messages
    bool missing_baseline_passes = false;
    bool update = false;            ///< relative limits are recorded, not judged
    bool allow_unfinished = false;  ///< Process::unfinished is a note, not a problem
};

/// Never throws but std::bad_alloc.
Outcome check(const std::vector<Process>& processes, const std::vector<Limit>& limits,
              const Options& options);

/// What a baseline keeps of a run: every metric that it has of the whole, and what `limits` say of
/// sites and scopes.
std::vector<BaselineFigure> figures_of(const std::vector<Process>& processes,
                                       const std::vector<Limit>& limits);

}  // namespace memlab::check
