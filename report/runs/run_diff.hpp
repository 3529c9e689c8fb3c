// Two runs of several processes side by side: what a change did to the whole, to each process, and
// to the call sites of all processes together.
//
// A figure of the whole is the sum over its processes, each at its own peak, and what the fullest
// GPU held at once. Call sites and scopes are added up over the processes that have a partner, so
// that like is compared with like: a rank more is a process that was added, not code that grew.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "report/runs/pairs.hpp"
#include "report/runs/process_figures.hpp"
#include "report/runs/render.hpp"
#include "report/views/diff.hpp"

namespace memlab::report {

struct ProcessDiff {
    ProcessPair pair;
    ProcessFigures before;  ///< all 0 where it was added
    ProcessFigures after;
    Change change;  ///< by the order; of memory at the peak the allocated peak
};

struct RunDiff {
    bool by_rank = false;
    std::vector<ProcessDiff> processes;  ///< all, by the size of the change
    std::size_t pairs = 0;
    std::size_t added = 0;
    std::size_t gone = 0;
    std::size_t unchanged = 0;  ///< of the pairs
    Change change;              ///< by the order, of all processes
    std::vector<DiffTotal> totals;
    bool peaks_at_once = false;  ///< they are among the totals: both runs' are known exactly
    SiteChanges sites;           ///< of the pairs
    ScopeChanges scopes;         ///< of the pairs
    std::vector<std::string> notes;
};

/// A run, and a way to the call sites of each of its processes.
struct RunDiffSide {
    const RunView& view;
    std::function<DiffSide(std::size_t member)> side_of;
};

/// With a device in `options` the figures, sites and totals are of that GPU in each process.
RunDiff diff_runs(const RunDiffSide& before, const RunDiffSide& after, const DiffOptions& options);

/// "1 process", "8 processes".
std::string processes_text(std::size_t count);

/// For people; ends with a newline.
std::string render_run_diff_text(const RunView& before, const RunView& after, const RunDiff& diff,
                                 const DiffOptions& options);

/// {"format": "memlab-run-diff", "version": 1, ...}; docs/report-format.md lists the members. Ends
/// with a newline.
std::string render_run_diff_json(const RunView& before, const RunView& after, const RunDiff& diff,
                                 const DiffOptions& options);

}  // namespace memlab::report
