// memlab's own pool: the very class that serves live programs, over a simulated device, one pool a
// context as in a live process.
//
// A freed block becomes reusable when the log says that the device was done with it (the models of
// stream-ordered allocators need not wait for that), or at once when all work is taken to go to one
// stream (interpose/one_stream.hpp). When memory is short the pool may order the
// device's future work behind a block's fence, as it does live; the simulated device agrees.
//
// The pool's clock (trim_after) moves with the allocations' times, as a program's timer would
// roughly. Left out: what the host's waiting in cudaFree changes. A log recorded with
// MEMLAB_FREE_SYNC=auto has waited where one with `never` would not have, so its completions come
// early for `never`.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "allocator/pool.hpp"
#include "report/whatif/free_ranges.hpp"
#include "report/whatif/model.hpp"

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

  private:
    class Device;
    class Books;
    struct OfContext;
    OfContext& of_context(std::uint32_t context);
    FreeSpace free_space() const;

    const allocator::PoolOptions options_;
    std::unique_ptr<Device> device_;
    std::map<std::uint32_t, std::unique_ptr<OfContext>> contexts_;
    struct Held {
        OfContext* context = nullptr;
        allocator::Address address = 0;
    };
    std::unordered_map<std::uint32_t, Held> held_;  ///< until it is complete
};

}  // namespace memlab::whatif
