// Compares the ranks of a job: the memory each needed, the imbalance, and the code that differs.
//
// A rank is a process with a rank variable (model/rank_variables.hpp). Helpers inherit the
// variable (data loaders, an exec): the process of a rank with the largest allocated peak
// represents it, the others are only counted. Figures are sums over the GPUs that the process used,
// at one level: what frameworks' caches handed out, or what the driver did.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/levels.hpp"
#include "report/runs/collection.hpp"
#include "report/runs/nn_module_peaks.hpp"
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

/// The peaks of one place of the source, of one kind of memory, on each rank: the sums of those of
/// its call stacks.
struct PlaceSpread {
    Place place;
    std::string kind;
    std::vector<StackFrame> frames;    ///< of the call stack that differs most
    std::vector<std::uint64_t> peaks;  ///< by rank
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
                       "by rank, in the order of `ranks`: the sum of the peaks of the place's call "
                       "stacks"},
                      self.peaks);
        visit.list(
            {"stack", "that of its call stacks which differs most, the call into CUDA first"},
            self.frames,
            [](const StackFrame& frame, auto& to) { StackFrame::name_fields(frame, to); });
    }
};

struct RankComparison {
    static constexpr std::size_t max_places = 256;
    static constexpr std::size_t max_nn_modules = 4096;
    Level level = Level::driver;              ///< or framework
    std::vector<RankRow> ranks;               ///< by rank
    std::optional<std::uint64_t> world_size;  ///< as set by the launcher
    Imbalance allocated;
    Imbalance reserved;
    std::vector<PlaceSpread> places;  ///< those that differ, largest difference first
    std::vector<NnModuleSpread> nn_modules;
    std::vector<std::string> notes;  ///< whole sentences
};

/// `resolver(member)` resolves that member's stacks. `level`: driver or framework; none: framework
/// where every rank's memory is seen at it. The list of ranks is empty if no process has a rank.
RankComparison compare_ranks(const RunCollection& run,
                             const std::function<Resolver&(std::size_t member)>& resolver,
                             const std::optional<Level>& level = std::nullopt);

/// The rows alone, at that level; no resolver is needed.
std::vector<RankRow> ranks_of(const RunCollection& run, const std::optional<Level>& level = {});
/// Of the allocated peaks.
Imbalance imbalance_of(const std::vector<RankRow>& ranks);
/// "rank 3 peaks at 371.93 MiB, the mean is 330.44 MiB"
std::string imbalance_text(const Imbalance& imbalance);

/// The level at which ranks are compared where none is asked for.
Level level_of_ranks(const RunCollection& run);

/// The notes of both, and the sentences of the run's lacks.
std::vector<std::string> notes_of_ranks(const RunCollection& run, const RankComparison& ranks);

}  // namespace memlab::report
