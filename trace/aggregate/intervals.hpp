// Figures of intervals that a running program asks for: the highest allocated level in each, and
// who held it. Not part of the report, nor of checkpoints.
//
// The level is that of scopes (scopes.hpp): device memory of all devices together, a segment of an
// allocator counted as what is handed out of it; or only what IntervalFilter takes of it. Who held
// the peak is kept without a copy at each new one: a site whose live bytes are about to change, the
// first time since the latest peak, has them put aside; a new peak drops what is there. The same
// for the parts of sites that nn.Modules hold.
//
// Nothing is done while no interval is open. An event costs O(open intervals), begin() O(live
// allocations), end() O(sites). Memory: O(sites that change) for each open interval, and
// max_intervals bounds these. Without host memory the open intervals are dropped: no figure is
// better than a wrong one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trace/aggregate/aggregator.hpp"
#include "trace/aggregate/site_table.hpp"

namespace memlab::trace {

/// What calls of an nn.Module allocated and what labels say is its own, not that of nn.Modules
/// within.
struct NnModuleHeld {
    std::uint32_t nn_module = 0;  ///< NnModuleStackDef::nn_module
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
};

/// Which memory an interval counts: by default device memory of all GPUs.
struct IntervalFilter {
    std::optional<std::uint32_t> gpu = {};  ///< of this GPU alone
    std::optional<MemoryKind> kind = {};    ///< of this kind in place of device memory

    bool takes_all() const { return !gpu && !kind; }
};

/// The figures of an interval. Bytes are of blocks, as in the allocated curve. A moment is how many
/// allocations there had been.
struct IntervalTotals {
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;
    std::uint64_t begin_bytes = 0;
    std::uint64_t end_bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t peak_time_ns = 0;  ///< when it was reached first; begin_ns if it never rose
    std::uint64_t begin_moment = 0;
    std::uint64_t peak_moment = 0;
    std::uint64_t end_moment = 0;
    std::uint64_t allocated_count = 0;
    std::uint64_t allocated_bytes = 0;
    std::uint64_t freed_count = 0;
    std::uint64_t freed_bytes = 0;
    /// What is_taken_by_library() of these allocations and is still there.
    std::uint64_t library_count = 0;
    std::uint64_t library_bytes = 0;
    /// The most by which the level without that was above begin_bytes.
    std::uint64_t own_growth_bytes = 0;
    Composition at_peak;  ///< of all devices
    /// Of that memory, largest first.
    std::vector<NnModuleHeld> nn_modules;
};

/// Thread-safety: none. Observes the aggregator while an interval is open.
class Intervals final : public LiveObserver {
  public:
    /// That are open, or have ended and are not forgotten.
    static constexpr std::size_t max_intervals = 64;

    /// The aggregator must outlive this.
    explicit Intervals(Aggregator& aggregate) : aggregate_(aggregate) {}

    /// Begins an interval with the name `id`. False if there are too many, or one of that name, or
    /// the aggregate is incomplete. May throw std::bad_alloc, without a change.
    bool begin(std::uint64_t id, const IntervalFilter& filter = {});
    /// Ends it, unless it has ended, and returns its figures, with the largest `max_sites` sites of
    /// the first call; valid until the next call of begin(), end() or forget(). Null: there is none
    /// of that name, or the aggregate became incomplete. May throw std::bad_alloc, without a
    /// change.
    const IntervalTotals* end(std::uint64_t id, std::size_t max_sites);
    void forget(std::uint64_t id);

    /// Writes the figures of PyTorch's cache on a GPU in the order of visit_memory_stats(), as many
    /// as there is room for; peaks are those since the previous call. Returns how many there are,
    /// or 0: there is no such cache, or the aggregate is incomplete.
    std::size_t take_cache_stats(int gpu, std::span<std::uint64_t> values);
    /// The live blocks of that cache that are at none of the addresses `known`, as an interval in
    /// which nothing happens. None: as above. May throw std::bad_alloc.
    std::optional<IntervalTotals> held_by_cache(int gpu, std::span<const std::uint64_t> known,
                                                std::size_t max_sites) const;
    /// The live device memory that was allocated between the first and the second of the moments,
    /// the third and the fourth, ..., which are in order; as an interval in which nothing happens.
    /// None: the aggregate is incomplete. O(live allocations). May throw std::bad_alloc.
    std::optional<IntervalTotals> made_between(std::span<const std::uint64_t> moments,
                                               std::size_t max_sites) const;

    void allocated(std::uint32_t slot, const Live& live, const Event& by) override;
    void freed(std::uint32_t slot, const Live& live, const LifeEnd& end) override;
    void moved(std::uint32_t slot, const Live& live, std::uint32_t to) override;
    void split(std::uint32_t slot, const Live& live) override;
    bool needs_all() const override { return false; }

  private:
    /// What is put aside: what a site held, and what a part of one did (NnModuleHolding).
    enum Of : std::size_t { site, part };
    using Tables = std::array<SiteTable, 2>;

    /// From the allocation of a library's block, which is still there, to that of the next one.
    struct Stretch {
        std::uint64_t serial = 0;  ///< Live::serial of the block; 0: from the start of the interval
        std::uint64_t size = 0;
        std::uint64_t highest = 0;  ///< level
    };

    struct Interval {
        std::uint64_t id = 0;
        bool open = true;
        IntervalFilter filter;
        std::uint64_t level = 0;
        Tables at_peak;  ///< what they held then that changed since
        std::vector<Stretch> stretches;
        IntervalTotals totals;
    };

    template <typename Work>
    void guarded(const Work& work);
    bool incomplete() const { return aggregate_.integrity().incomplete; }
    Interval* find(std::uint64_t id);
    bool any_open() const;
    bool takes(const IntervalFilter& filter, std::uint32_t site) const;
    bool is_of_library(std::uint32_t site);
    std::uint64_t level_of(const IntervalFilter& filter);
    const DeviceTotals* pytorch_on(int gpu) const;
    template <typename Taken>
    IntervalTotals live_now(std::size_t max_sites, const Taken& taken) const;
    void read_live();
    void observe();
    void cut(const Live& live);
    SiteTable::Item held_by(Of of, std::uint32_t index);
    SiteTable::Item held_at_peak_by(Interval& interval, Of of, std::uint32_t index);
    void keep(Interval& interval, Of of, std::uint32_t index, const Live* added);
    static void forget_block(Interval& interval, const Live& live);
    static void sum_up_libraries(Interval& interval);
    void rise(const Live& live);
    void fall(const Live& live);
    Composition composition(Interval& interval, std::size_t max_sites);
    std::vector<NnModuleHeld> nn_modules(Interval& interval);

    Aggregator& aggregate_;
    std::vector<std::unique_ptr<Interval>> intervals_;
    Tables segments_;  ///< what of these is segments; valid while one is open
    std::vector<std::optional<bool>> of_library_;  ///< by site, as far as it was asked for
};

}  // namespace memlab::trace
