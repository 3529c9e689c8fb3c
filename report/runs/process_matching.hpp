// Matches the processes of two runs, by rank and program; process ids differ between runs.
//
// If both runs have ranks, the process with the largest allocated peak represents its rank, as in a
// comparison of ranks, whatever the name of its program: a new version may have a new name. All
// others (helpers of a rank, processes without one, runs without ranks) are matched by the name of
// their program (the script, if an interpreter runs one) and the order in which processes of that
// name started; the remaining ones by their executable, in the order of their start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/runs/collection.hpp"
#include "report/runs/tree.hpp"

namespace memlab::report {

struct ProcessPair {
    std::size_t before = no_member;  ///< index into RunCollection::members; no_member: it was added
    std::size_t after = no_member;   ///< no_member: it is gone
    std::optional<std::uint64_t> rank;
    bool stands_for_rank = false;  ///< it represents its rank; the others of the rank are helpers

    bool both() const { return before != no_member && after != no_member; }
};

struct ProcessMatching {
    bool by_rank = false;
    std::vector<ProcessPair> pairs;  ///< by rank, then those without one, by start
};

/// Every member of both runs is in exactly one pair.
ProcessMatching match_processes(const RunCollection& before, const RunCollection& after);

/// The pair that represents a rank. None, with `problem` set to "what is wrong; what to do", if
/// there is no such pair or only one run has the process.
std::optional<ProcessPair> find_rank_pair(const RunCollection& before, const RunCollection& after,
                                          const ProcessMatching& matching, std::uint64_t rank,
                                          std::string* problem);

/// The pair with a process of that id, in AFTER or else in BEFORE, or of that name (of the script
/// or the executable). None as above, also if several pairs have that name.
std::optional<ProcessPair> find_process_pair(const RunCollection& before,
                                             const RunCollection& after,
                                             const ProcessMatching& matching,
                                             const std::string& name_or_pid, std::string* problem);

/// "train.py" of "python3 -u /src/train.py", "package.train" of "python3 -m package.train",
/// "server" of "/opt/bin/server".
std::string program_name(const model::Process& process);
/// The same with its arguments: "train.py --batch 8" of "python3 -u /src/train.py --batch 8".
std::vector<std::string> program_command(const model::Process& process);

}  // namespace memlab::report
