// A run for people (the tree, what its processes took of each GPU together, the notes) and a
// comparison of ranks; both for scripts too (JSON, docs/report-format.md).
#pragma once

#include <string>
#include <vector>

#include "report/runs/collection.hpp"
#include "report/runs/combined_usage.hpp"
#include "report/runs/ranks.hpp"
#include "report/runs/tree.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

/// All that is shown of a run, worked out.
struct RunView {
    std::string source;  ///< the folder, or what else was asked for
    RunCollection collection;
    ProcessTree tree;
    std::vector<GpuTogether> gpus;
    std::size_t largest = no_member;  ///< the member with the largest allocated peak
};

/// Works the rest out from `collection`, and from the event logs beside its reports.
RunView view_run(const std::string& source, RunCollection collection);

/// "rank 3: python3 train.py": its command, without the folder of the program. Not printable() yet.
std::string process_title(const Process& process);

/// How a process ended in one word: "ended", "exit 3", "SIGKILL", "exec", "cut off", "running".
/// `became`: another image of it follows.
std::string outcome_word(const RunMember& member, bool became);

/// Ends with a newline. The summary of the largest process is not part of it.
std::string render_run_text(const RunView& view, const Style& style);

/// {"format": "memlab-run-summary", "version": 1, ...}; ends with a newline.
std::string render_run_json(const RunView& view);

/// `top`: rows of the table of places.
std::string render_ranks_text(const RunView& view, const RankComparison& ranks, const Style& style,
                              std::size_t top, const std::string& working_directory);

/// {"format": "memlab-merge", "version": 1, ...}; ends with a newline.
std::string render_ranks_json(const RunView& view, const RankComparison& ranks);

}  // namespace memlab::report
