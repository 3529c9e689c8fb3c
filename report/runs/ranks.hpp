// Compares the ranks of a job: the memory each needed, the imbalance, and the code that differs.
//
// A rank is a process with a rank variable (model/rank_variables.hpp). Helpers inherit the
// variable (data loaders, an exec): the process of a rank with the largest allocated peak
// represents it, the others are only counted. Figures are sums over the GPUs that the process used.
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
    std::size_t processes = 1;      ///< with this rank that used a GPU
    std::vector<std::string> gpus;  ///< UUIDs, in the order of their indexes in the process
    std::uint64_t allocated_peak = 0;
    std::uint64_t reserved_peak = 0;
    std::uint64_t managed_peak = 0;       ///< the curves do not include it, nor the next
    std::uint64_t pinned_peak = 0;        ///< host memory
    std::optional<double> fragmentation;  ///< 1 - active/reserved at the peaks, over its pools
    std::uint64_t allocations = 0;        ///< of device memory, over the whole run
    std::uint64_t ooms = 0;
};

/// The imbalance of a figure over the ranks: largest / mean; 1 if all are equal.
struct Imbalance {
    std::uint64_t largest = 0;
    double mean = 0;
    std::optional<double> ratio;  ///< none if all are 0
    std::uint64_t rank = 0;       ///< the first rank with the largest

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"largest_bytes", "of the ranks"}, self.largest);
        visit.real({"mean_bytes", "of the ranks"}, self.mean);
        visit.real_or_null({"ratio", "largest / mean; null where all are 0", model::AtLeast{1}},
                           self.ratio);
        visit.number({"rank", "the first with the largest"}, self.rank);
    }
};

/// The peaks of one place (a call stack with its names, and the kind of memory) on each rank.
struct PlaceSpread {
    Place place;
    std::string kind;
    std::vector<StackFrame> frames;
    std::vector<std::uint64_t> peaks;  ///< by rank: the sum of the peaks of its call sites
    std::size_t max_rank = 0;          ///< index into RankComparison::ranks, of the largest peak
    std::size_t min_rank = 0;

    /// Between the ranks with the largest and the smallest.
    std::uint64_t difference() const {
        return peaks.empty() ? 0 : peaks[max_rank] - peaks[min_rank];
    }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"difference_bytes", "between the largest and the smallest of `peak_bytes`"},
                     self.difference());
        visit.text({"kind", "the kind of memory"}, self.kind);
        Place::name_fields(self.place, visit);
        visit.numbers({"peak_bytes",
                       "by rank, in the order of `ranks`: the sum of the peaks of the call sites "
                       "with that stack"},
                      self.peaks);
        visit.list({"stack", "the call into CUDA first"}, self.frames,
                   [](const StackFrame& frame, auto& to) { StackFrame::name_fields(frame, to); });
    }
};

struct RankComparison {
    static constexpr std::size_t max_places = 256;
    std::vector<RankRow> ranks;               ///< by rank
    std::optional<std::uint64_t> world_size;  ///< as set by the launcher
    Imbalance allocated;
    Imbalance reserved;
    std::vector<PlaceSpread> places;  ///< those that differ, largest difference first
    std::vector<std::string> notes;   ///< whole sentences
};

/// `resolver(member)` resolves that member's stacks. The list of ranks is empty if no process has a
/// rank.
RankComparison compare_ranks(const RunCollection& run,
                             const std::function<Resolver&(std::size_t member)>& resolver);

/// The notes of both, and the sentences of the run's lacks.
std::vector<std::string> notes_of_ranks(const RunCollection& run, const RankComparison& ranks);

}  // namespace memlab::report
