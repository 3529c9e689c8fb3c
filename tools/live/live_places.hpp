// Which line of the code a call site of a running process is. A process answers with addresses and
// paths as it sees them; the names come from its binaries, and only from those that it runs.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "model/interval_document.hpp"
#include "report/symbols/resolver.hpp"
#include "report/symbols/symbolizer.hpp"

namespace memlab::tools {

/// A call site's stack, with names.
struct LiveStack {
    report::Place place;
    std::vector<report::StackFrame> frames;  ///< the call into CUDA first
};

/// Of one process. Thread-safety: none.
class LivePlaces {
  public:
    /// `symbolizer` keeps what is read of binaries, and must outlive this; processes may share it.
    LivePlaces(pid_t process, report::Symbolizer& symbolizer);

    /// The place of each site of the document.
    std::vector<report::Place> places(const model::IntervalDocument& document);
    /// The same with the frames.
    std::vector<LiveStack> stacks(const model::IntervalDocument& document);

    /// Files below it are shown relative to it; empty: not known.
    const std::string& working_directory() const { return working_directory_; }

  private:
    std::string root_;  ///< what paths of the process begin with here; empty: nothing
    std::string working_directory_;
    report::Symbolizer& symbolizer_;
};

}  // namespace memlab::tools
