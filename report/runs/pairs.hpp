// Which process of one run is which of another: process ids say nothing about that, ranks and
// programs do.
//
// By rank where both runs have ranks: the process with the largest allocated peak stands for its
// rank, as in a comparison of ranks, whatever its program is called, for a new version may have a
// new name. All others (helpers of a rank, processes without one, runs without ranks) by the name
// of their program, a script's where an interpreter runs one, and the order in which those of one
// name started; those that are left then by their executable, in the order of their start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/runs/collection.hpp"
#include "report/runs/tree.hpp"

namespace memlab::report {

struct ProcessPair {
    std::size_t before = no_member;  ///< index into RunCollection::members; none: it was added
    std::size_t after = no_member;   ///< none: it is gone
    std::optional<std::uint64_t> rank;
    bool stands_for_rank = false;  ///< the others of a rank are its helpers

    bool both() const { return before != no_member && after != no_member; }
};

struct Pairing {
    bool by_rank = false;
    std::vector<ProcessPair> pairs;  ///< ranks first, in their order; then the others, by start
};

/// Every member of both runs is in one pair.
Pairing pair_processes(const RunCollection& before, const RunCollection& after);

/// The pair that stands for a rank; nothing, and `problem` ("what; what to do"), where there is
/// none or it has no partner.
std::optional<ProcessPair> pair_of_rank(const RunCollection& before, const RunCollection& after,
                                        const Pairing& pairing, std::uint64_t rank,
                                        std::string* problem);

/// The pair with a process of that id, in AFTER or else in BEFORE, or of that name: a script's or
/// an executable's. As above; several of one name are a problem, too.
std::optional<ProcessPair> pair_of_process(const RunCollection& before, const RunCollection& after,
                                           const Pairing& pairing, const std::string& name_or_pid,
                                           std::string* problem);

/// "train.py" of "python3 -u /src/train.py", "package.train" of "python3 -m package.train",
/// "server" of "/opt/bin/server".
std::string program_name(const Process& process);

}  // namespace memlab::report
