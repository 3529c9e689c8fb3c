// All that a run left behind: the reports and logs of its processes, and what memlab-run wrote of
// them. From a folder or from single files, of one host or copied together from many. What cannot
// be read is listed, what looks odd is noted, and nothing that can be read is left out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/model.hpp"

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

/// What a run file (memlab-run.<host>.<pid>.json) says beyond the reports.
struct RunFacts {
    struct Member {
        std::uint64_t pid = 0;
        std::uint64_t start_wall_ns = 0;
        std::uint64_t start_ticks = 0;
        bool recovered = false;
        bool running = false;
        std::uint64_t held_bytes = 0;
        std::vector<std::string> arguments;
        std::optional<std::string> report;  ///< file name; null: there was none
        std::optional<std::string> log;
    };
    struct Ancestor {
        std::uint64_t parent_pid = 0;
        std::string command;
    };
    std::string file;
    std::string host;
    std::uint64_t pid = 0;  ///< of memlab-run
    std::vector<std::string> command;
    std::uint64_t start_wall_ns = 0;
    std::uint64_t end_wall_ns = 0;
    std::string signal;                      ///< that ended the command; else empty
    std::optional<std::uint64_t> exit_code;  ///< the command's
    std::map<std::string, std::string> replaced;
    std::vector<Member> members;
    std::map<std::uint64_t, Ancestor> ancestors;  ///< by pid: without CUDA of their own
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
