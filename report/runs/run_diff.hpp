// Compares two runs of several processes: in total, by process, and by the call sites of all
// processes.
//
// Totals are sums over the processes, each at its own peak, and the combined peak of the fullest
// GPU. Call sites and scopes are summed over matched processes only, so that like is compared with
// like: an additional rank is a process that was added, not code that uses more.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "report/runs/process_matching.hpp"
#include "report/runs/process_stats.hpp"
#include "report/runs/render.hpp"
#include "report/views/diff.hpp"

namespace memlab::report {

struct ProcessDiff {
    ProcessPair pair;
    ProcessStats before;  ///< all 0 if it was added
    ProcessStats after;
    Change change;  ///< of the figure that the order sorts by; for Order::peak the allocated peak
};

struct RunDiff {
    bool by_rank = false;
    std::vector<ProcessDiff> processes;  ///< all, largest change first
    std::size_t pairs = 0;
    std::size_t added = 0;
    std::size_t gone = 0;
    std::size_t unchanged = 0;  ///< of the pairs
    Change change;              ///< as ProcessDiff::change, of all processes
    std::vector<DiffTotal> totals;
    bool peaks_at_once = false;  ///< totals include the combined peaks: both are known exactly
    SiteChanges sites;           ///< of the pairs
    ScopeChanges scopes;         ///< of the pairs
    std::vector<std::string> notes;
};

/// A run, and access to the call sites of each of its processes.
struct RunDiffSide {
    const RunView& view;
    std::function<DiffSide(std::size_t member)> process;
};

/// If `options` names a device, all figures are of that GPU in each process.
RunDiff diff_runs(const RunDiffSide& before, const RunDiffSide& after, const DiffOptions& options);

/// "1 process", "8 processes".
std::string processes_text(std::size_t count);

/// Text; ends with a newline.
std::string render_run_diff_text(const RunView& before, const RunView& after, const RunDiff& diff,
                                 const DiffOptions& options);

/// {"format": "memlab-run-diff", "version": 1, ...}: RunDiffDocument. Ends with a newline.
std::string render_run_diff_json(const RunView& before, const RunView& after, const RunDiff& diff,
                                 const DiffOptions& options);

}  // namespace memlab::report
