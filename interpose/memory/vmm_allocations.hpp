// Tracks physical allocations of the virtual memory management API. Their memory lives until every
// handle is released and every mapping removed; a handle's value may be reused before that, so the
// recording identifies them by a number of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "threads/mutex.hpp"
#include "trace/address_map.hpp"
#include "trace/hash_index.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class VmmAllocations {
  public:
    using Handle = CUmemGenericAllocationHandle;

    /// A new allocation with one reference; returns its number.
    std::uint64_t created(Handle handle);

    /// cuMemRetainAllocationHandle returned the handle once more.
    void retained(Handle handle);

    void mapped(CUdeviceptr address, std::size_t bytes, Handle handle);

    struct Range {
        CUdeviceptr begin = 0;
        std::size_t bytes = 0;
        std::uint64_t allocation = 0;  ///< the number of what is mapped
    };
    /// The mapping that contains the address; of no bytes: none.
    Range mapping_at(CUdeviceptr address);

    /// Both return the numbers of allocations that ended with the call.
    std::vector<std::uint64_t> unmapped(CUdeviceptr address, std::size_t bytes);
    std::vector<std::uint64_t> released(Handle handle);

  private:
    struct Allocation {
        std::uint64_t number;
        int handles;
        int mappings;
    };
    struct Mapping {
        std::size_t bytes;
        std::uint32_t allocation;
    };
    struct LiveHandle {
        Handle handle;
        std::uint32_t allocation;
    };

    static std::uint64_t hash(Handle handle) { return trace::HashIndex::spread(handle); }
    std::uint32_t find_slot(Handle handle) const MEMLAB_REQUIRES(mutex_);
    void bind(Handle handle, std::uint32_t allocation) MEMLAB_REQUIRES(mutex_);
    void unbind(std::uint32_t slot) MEMLAB_REQUIRES(mutex_);
    void erase_if_dead(std::uint32_t allocation, std::vector<std::uint64_t>& dead)
        MEMLAB_REQUIRES(mutex_);

    threads::Mutex mutex_;
    std::uint64_t next_number_ MEMLAB_GUARDED_BY(mutex_) = 1;
    // Slots are reused, so that the steady state allocates nothing.
    std::vector<Allocation> allocations_ MEMLAB_GUARDED_BY(mutex_);
    std::vector<std::uint32_t> free_ MEMLAB_GUARDED_BY(mutex_);
    std::vector<LiveHandle> live_handles_
        MEMLAB_GUARDED_BY(mutex_);  // handles that are not released, packed
    trace::HashIndex index_ MEMLAB_GUARDED_BY(mutex_);
    trace::AddressMap<Mapping> mappings_ MEMLAB_GUARDED_BY(mutex_);
};

/// The process-wide instance; never destroyed.
VmmAllocations& vmm_allocations();

}  // namespace memlab::interpose
