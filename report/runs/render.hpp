// Text and JSON output (docs/report-format.md) of a run (the process tree, the combined use of each
// GPU, notes) and of a comparison of ranks.
#pragma once

#include <string>
#include <vector>

#include "report/runs/collection.hpp"
#include "report/runs/combined_usage.hpp"
#include "report/runs/ranks.hpp"
#include "report/runs/tree.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

/// The computed data of a run that the outputs show.
struct RunView {
    std::string source;  ///< the folder or files, as given by the user
    RunCollection collection;
    ProcessTree tree;
    std::vector<GpuUsage> gpus;
    std::size_t largest = no_member;  ///< the member with the largest allocated peak
};

/// Computes the view from `collection` and the event logs next to its reports.
RunView view_run(const std::string& source, RunCollection collection);

/// "rank 3: python3 train.py": the command without the program's folder. Not passed through
/// printable().
std::string process_title(const model::Process& process);

/// How a process ended in one word: "ended", "exit 3", "SIGKILL", "exec", "cut off", "running".
/// `became`: another image of the process follows.
std::string outcome_word(const RunMember& member, bool became);

/// Ends with a newline. Does not include the summary of the largest process.
std::string render_run_text(const RunView& view, const Style& style);

/// {"format": "memlab-run-summary", "version": 1, ...}; ends with a newline.
std::string render_run_json(const RunView& view);

struct RanksTextOptions {
    Style style;
    std::size_t top = 10;       ///< maximum rows of the last table
    bool by_nn_module = false;  ///< it is of nn.Modules, else of places
    std::string working_directory;
};

std::string render_ranks_text(const RunView& view, const RankComparison& ranks,
                              const RanksTextOptions& options);

/// {"format": "memlab-merge", "version": 1, ...}; ends with a newline.
std::string render_ranks_json(const RunView& view, const RankComparison& ranks);

}  // namespace memlab::report
