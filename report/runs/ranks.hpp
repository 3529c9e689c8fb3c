// The ranks of a job side by side: what each needed, how uneven they are, and which code makes the
// difference.
//
// A rank is a process with a rank variable (trace/json/rank_variables.hpp). Helpers inherit the
// variable (data loaders, an exec): of the processes of one rank the one with the largest allocated
// peak stands for it, and the others are counted. Figures are sums over the GPUs that it used.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/runs/collection.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

struct RankRow {
    std::uint64_t rank = 0;
    std::optional<std::uint64_t> local_rank;
    std::size_t member = 0;         ///< index into RunCollection::members
    std::size_t processes = 1;      ///< that carry this rank and used a GPU
    std::vector<std::string> gpus;  ///< UUIDs, in the order of its own indexes
    std::uint64_t allocated_peak = 0;
    std::uint64_t reserved_peak = 0;
    std::optional<double> fragmentation;  ///< 1 - active/reserved at their peaks, of all its pools
    std::uint64_t allocations = 0;        ///< of device memory, over the whole run
    std::uint64_t ooms = 0;
};

/// How uneven a figure is over the ranks: largest / mean, 1 when all are the same.
struct Imbalance {
    std::uint64_t largest = 0;
    double mean = 0;
    std::optional<double> ratio;  ///< none when all are 0
    std::uint64_t rank = 0;       ///< the first that has the largest
};

/// One place (a call stack with its names, and the kind of memory) over the ranks.
struct PlaceSpread {
    Place place;
    std::string kind;
    std::vector<StackFrame> frames;
    std::vector<std::uint64_t> peaks;  ///< a rank each: the sum of the peaks of its call sites
    std::size_t most = 0;              ///< index into the ranks
    std::size_t least = 0;

    std::uint64_t difference() const { return peaks[most] - peaks[least]; }
};

struct RankComparison {
    std::vector<RankRow> ranks;               ///< by rank
    std::optional<std::uint64_t> world_size;  ///< what the launcher said
    Imbalance allocated;
    Imbalance reserved;
    std::vector<PlaceSpread> places;  ///< those that differ, by how much, at most 256
    std::vector<std::string> notes;   ///< whole sentences
};

/// `resolver_of(member)` gives the names of that member's stacks. Without any rank the list of
/// ranks is empty.
RankComparison compare_ranks(const RunCollection& run,
                             const std::function<Resolver&(std::size_t member)>& resolver_of);

/// The rank that a launcher gave the process; none without one.
std::optional<std::uint64_t> rank_of(const Process& process);

}  // namespace memlab::report
