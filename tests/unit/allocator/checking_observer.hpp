// An independent reference model of the pool, driven by its events. It keeps segments and the
// ranges in use inside them, and checks every event:
//  - no block overlaps a live or pending one, or leaves its segment;
//  - frees complete after they were requested, once;
//  - each allocation takes exactly the range that the policy selects, found by examining every gap;
//  - the pool grows only when no gap fits; in an expandable range by no more pages than needed, and
//    not beyond its peak, or a 24th above that of the active bytes, while there are free whole
//    pages elsewhere.
// It also recomputes the statistics. It shares only the options with the pool's code.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "allocator/pool.hpp"

namespace memlab::allocator::testing {

struct Seen {
    enum class What : std::uint8_t {
        alloc,
        free_requested,
        free_completed,
        segment_alloc,
        segment_free,
        alloc_retry,
        sync,
        segment_map,
        segment_unmap,
        reclaim,
        empty_cache,
        tick,
    };
    What what = What::alloc;
    Address address = 0;
    std::uint64_t size = 0;
    std::uint64_t requested = 0;
    Tag tag = 0;

    bool operator==(const Seen&) const = default;
};

class CheckingObserver final : public PoolObserver {
  public:
    explicit CheckingObserver(const PoolOptions& options);

    void on_alloc(const BlockInfo& block, Tag tag) override;
    void on_free_requested(const BlockInfo& block, Tag tag) override;
    void on_free_completed(const BlockInfo& block) override;
    void on_segment_alloc(Address segment, std::uint64_t size, Tag tag) override;
    void on_segment_free(Address segment, std::uint64_t size) override;
    void on_segment_map(Address address, std::uint64_t bytes, Tag tag) override;
    void on_segment_unmap(Address address, std::uint64_t bytes) override;
    void on_alloc_retry(std::uint64_t requested, Tag tag) override;
    void on_reclaim(std::uint64_t requested, Tag tag) override;
    void on_empty_cache() override;
    void on_tick(std::uint64_t now_ns) override;
    void on_sync() override;

    /// The events since the last take_*(), in order.
    const std::vector<Seen>& events() const { return events_; }
    /// Returns and clears the events since the last call, in order.
    std::vector<Seen> take_events();
    /// The same, only their kinds.
    std::vector<Seen::What> take_kinds();

    /// Else the events do not tell what belongs to the small and what to the large pool: all counts
    /// as large here, and test_unshared.cpp checks the placement.
    bool packs_all() const { return !options_.expandable || options_.packed_share >= 1; }

    /// All violations so far.
    const std::vector<std::string>& problems() const { return problems_; }

    /// The statistics derived from the events. num_ooms has no event: it stays 0.
    const PoolStats& stats() const { return stats_; }

    /// The largest request that free memory could serve, where blocks are packed.
    std::uint64_t largest_free() const;

    /// Whether these statistics of the pool are those of the events, as far as events tell.
    bool agrees(PoolStats stats) const;

    /// Call it with Pool::abandon(), for which there is no event.
    void forget();

    struct Range {
        std::uint64_t size = 0;
        std::uint64_t requested = 0;
        std::uint64_t id = 0;
        bool live = true;
    };
    /// By address: live blocks, and freed ones whose free is not complete.
    const std::map<Address, Range>& in_use() const { return in_use_; }

  private:
    struct SegmentSeen {
        std::uint64_t size = 0;
        bool small = false;
    };
    struct Gap {
        Address begin = 0;
        Address end = 0;
        Address segment = 0;
        std::uint64_t segment_size = 0;
        bool expandable = false;
    };
    struct Fit {
        const Gap* gap = nullptr;
        Address begin = 0;
    };
    std::vector<Gap> gaps(bool small) const;
    void add_gaps(Gap run, std::vector<Gap>& found) const;
    Fit best_fit(const std::vector<Gap>& all, std::uint64_t size) const;
    void accept_fresh_pages(const BlockInfo& block);
    bool has_pages(Address begin, Address end) const;
    void expect_placement(const BlockInfo& block);
    void recount_split(bool small);
    std::uint64_t expected_size(std::uint64_t requested) const;
    void problem(const std::string& text, Address address);
    bool small_segment(Address segment) const;

    const PoolOptions options_;
    std::map<Address, SegmentSeen> segments_;
    std::map<Address, Range> in_use_;
    std::map<Address, SegmentSeen> ranges_;    ///< expandable ones
    std::set<Address> pages_;                  ///< of ranges, those with memory
    std::map<Address, std::uint64_t> chunks_;  ///< of ranges: start to size
    Address fresh_segment_ = 0;                ///< the previous event was its segment_alloc
    Seen fresh_pages_;                         ///< the previous event, where it was a segment_map
    PoolStats stats_;
    std::vector<Seen> events_;
    std::vector<std::string> problems_;
};

}  // namespace memlab::allocator::testing
