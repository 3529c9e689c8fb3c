// memlab's own pool: the class that serves live programs, on a simulated device, one pool per
// context as in a live process.
//
// A freed block becomes reusable at its free_completed event (the models of stream-ordered
// allocators do not wait for that), or at once when all work is assumed to be on one stream
// (interpose/driver/one_stream.hpp). When memory is short the pool may make future device work wait
// for a block's fence, as it does live; the simulated device accepts that.
//
// The pool's clock (trim_after) follows the times of allocations. Not modelled: host waits in
// cudaFree. A log recorded with MEMLAB_FREE_SYNC=auto includes waits that `never` would not have,
// so its completions are too early for `never`.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "allocator/pool.hpp"
#include "report/whatif/free_space_at_peak.hpp"
#include "report/whatif/model.hpp"
#include "trace/hash_index.hpp"

namespace memlab::report::whatif {

class PoolModel final : public Model {
  public:
    /// allocator::problem_with(options) must be empty. `segments`: the driver's answers to repeat,
    /// as long as the pool asks for the same: where segments lie decides between equal blocks.
    PoolModel(std::uint64_t capacity, const allocator::PoolOptions& options,
              bool one_stream = false, std::vector<RecordedSegment> segments = {});
    ~PoolModel() override;

    bool allocate(std::uint32_t id, const Allocation& allocation) override;
    void free(std::uint32_t id) override;
    void complete(std::uint32_t id) override;
    void empty_cache() override;
    void context_lost(std::uint32_t context) override;
    FreeSpace at_growth() const override;

  private:
    class Device;
    class MeterObserver;
    struct ContextPool;
    ContextPool& context_pool(std::uint32_t context);
    void add_block(std::uint32_t id, std::uint32_t context, const allocator::BlockInfo& block);
    void remove_block(allocator::Address address);

    const allocator::PoolOptions options_;
    std::unique_ptr<Device> device_;
    std::map<std::uint32_t, std::unique_ptr<ContextPool>> contexts_;
    bool has_context_ = false;  ///< or had one: the first packs blocks

    struct Owner {
        std::uint32_t allocation = 0;
        std::uint32_t context = 0;
    };
    static constexpr FreeSpaceAtPeak::Slot none = trace::HashIndex::none;
    // Blocks until their completion; address ranges of pools are disjoint.
    FreeSpaceAtPeak space_;
    std::vector<Owner> owners_;                ///< by slot
    std::deque<FreeSpaceAtPeak::Slot> slots_;  ///< by allocation; none: reused or completed
    trace::HashIndex by_address_;              ///< slots
};

}  // namespace memlab::report::whatif
