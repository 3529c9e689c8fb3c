// The recordings of a run: the reports and logs of its processes, and memlab-run's own file. Read
// from a folder or from single files, of one host or copied together from several. Unreadable files
// are listed as errors, inconsistencies as notes; everything readable is included.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "report/runs/run_facts.hpp"
#include "trace/json/report.hpp"

namespace memlab::report {

/// One process image (exec starts a new one).
struct RunMember {
    std::string file;       ///< the report, or the log if there is no report
    std::string warning;    ///< ReadResult::warning
    bool from_log = false;  ///< the process wrote no report itself
    bool running = false;   ///< when memlab-run wrote its file
    std::uint64_t start_ticks =
        0;  ///< since boot, the same for all images of a process; 0: unknown
    Report report;
};

struct RunCollection {
    std::vector<RunMember> members;                           ///< by start, host and pid
    std::vector<RunFacts> runs;                               ///< by start
    std::vector<std::string> notes;                           ///< whole sentences
    std::vector<std::pair<std::string, std::string>> errors;  ///< file, "what is wrong; what to do"
};

/// Reads files, and the recordings in folders (not in their subfolders). Other files in a folder
/// are ignored; a file that is named itself must be a recording. Never throws.
RunCollection collect_run(const std::vector<std::string>& paths);

/// True for a folder.
bool is_folder(const std::string& path);

}  // namespace memlab::report
