// Tracks physical allocations of the virtual memory management API. Their memory lives until every
// handle is released and every mapping removed; a handle's value may be reused before that, so the
// recording identifies them by a number of its own.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
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
    std::uint32_t find_slot(Handle handle) const;
    void bind(Handle handle, std::uint32_t allocation);
    void unbind(std::uint32_t slot);
    void erase_if_dead(std::uint32_t allocation, std::vector<std::uint64_t>& dead);

    std::mutex mutex_;
    std::uint64_t next_number_ = 1;
    // Slots are reused, so that the steady state allocates nothing.
    std::vector<Allocation> allocations_;
    std::vector<std::uint32_t> free_;
    std::vector<LiveHandle> live_handles_;  // handles that are not released, packed
    trace::HashIndex index_;
    trace::AddressMap<Mapping> mappings_;
};

/// The process-wide instance; never destroyed.
VmmAllocations& vmm_allocations();

}  // namespace memlab::interpose
