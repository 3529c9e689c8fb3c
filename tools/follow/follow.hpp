// Shows a view of recordings again and again while their programs run: in place on a terminal, else
// each time that something changed. Ends when the programs have, with the view as it is without.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "report/reading/reader.hpp"

namespace memlab::tools {

struct FollowRequest {
    /// Event logs, processes and folders of runs. Processes are replaced by their logs.
    std::vector<std::string>& files;
    double interval_s = 1;
    bool json = false;  ///< a document a line, also on a terminal
    bool ascii = false;
    report::StepSearch search = report::StepSearch::none;
    report::LogSinkFactory make_sink = {};
    /// Prints the view to std::cout, of recordings that are read by the reader; none: as they are
    /// read otherwise. Returns the exit code.
    std::function<int(const report::RecordingReader& reader)> show;
};

/// Returns the exit code: that of the last view, or exit_bad_input's with one line on what it is.
int follow(const FollowRequest& request);

}  // namespace memlab::tools
