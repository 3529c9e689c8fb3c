// All that a run left behind: the reports and logs of its processes, and what memlab-run wrote of
// them. From a folder or from single files, of one host or copied together from many. What cannot
// be read is listed, what looks odd is noted, and nothing that can be read is left out.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "report/model.hpp"
#include "report/runs/run_facts.hpp"

namespace memlab::report {

/// One process image (an exec begins a new one).
struct RunMember {
    std::string file;       ///< as it was found: a report, or a log where there is no report
    std::string warning;    ///< the reader's, of a log
    bool from_log = false;  ///< the process wrote no report itself
    bool running = false;   ///< when memlab-run looked
    std::uint64_t start_ticks = 0;  ///< since boot; two images of one process share it; 0: unknown
    Report report;
};

struct RunCollection {
    std::vector<RunMember> members;                           ///< by start, host and pid
    std::vector<RunFacts> runs;                               ///< by start
    std::vector<std::string> notes;                           ///< whole sentences
    std::vector<std::pair<std::string, std::string>> errors;  ///< file, what is wrong; what to do
};

/// Reads files and the files of folders (not of their subfolders). Files of a folder that are no
/// recordings are passed over; a file that is named must be one. Never throws.
RunCollection collect_run(const std::vector<std::string>& paths);

/// True for a folder.
bool is_folder(const std::string& path);

}  // namespace memlab::report
