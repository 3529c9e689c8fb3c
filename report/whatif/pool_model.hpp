// memlab's own pool: the very class that serves live programs, over a simulated device, one pool a
// context as in a live process.
//
// A freed block becomes reusable when the log says that the device was done with it (the models of
// stream-ordered allocators need not wait for that), or at once when all work is taken to go to one
// stream (interpose/driver/one_stream.hpp). When memory is short the pool may order the
// device's future work behind a block's fence, as it does live; the simulated device agrees.
//
// The pool's clock (trim_after) moves with the allocations' times, as a program's timer would
// roughly. Left out: what the host's waiting in cudaFree changes. A log recorded with
// MEMLAB_FREE_SYNC=auto has waited where one with `never` would not have, so its completions come
// early for `never`.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "allocator/pool.hpp"
#include "report/whatif/free_space_at_peak.hpp"
#include "report/whatif/model.hpp"
#include "trace/hash_index.hpp"

namespace memlab::whatif {

class PoolModel final : public Model {
  public:
    /// allocator::problem_with(options) must be empty.
    PoolModel(std::uint64_t capacity, const allocator::PoolOptions& options,
              bool one_stream = false);
    ~PoolModel() override;

    bool allocate(std::uint32_t id, const Allocation& allocation) override;
    void free(std::uint32_t id) override;
    void complete(std::uint32_t id) override;
    void empty_cache() override;
    void context_lost(std::uint32_t context) override;
    FreeSpace at_growth() const override;

  private:
    class Device;
    class Books;
    struct OfContext;
    OfContext& of_context(std::uint32_t context);
    void hold(std::uint32_t id, std::uint32_t context, const allocator::BlockInfo& block);
    void let_go(allocator::Address address);

    const allocator::PoolOptions options_;
    std::unique_ptr<Device> device_;
    std::map<std::uint32_t, std::unique_ptr<OfContext>> contexts_;

    struct Held {
        std::uint32_t allocation = 0;
        std::uint32_t context = 0;
    };
    static constexpr PastSpace::Place none = trace::HashIndex::none;
    // What is in use, until it is complete; no two pools have the same addresses.
    PastSpace space_;
    std::vector<Held> held_;                ///< by place
    std::vector<PastSpace::Place> places_;  ///< by allocation; none: it has no place any more
    trace::HashIndex by_address_;           ///< places
};

}  // namespace memlab::whatif
