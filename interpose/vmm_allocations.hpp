// Physical allocations of the virtual memory management API. Their memory lives until every handle
// is released and every mapping removed; the handle's value may be reused before that, so the
// recording knows them by a number of their own.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "interpose/cuda_abi.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class VmmAllocations {
  public:
    using Handle = CUmemGenericAllocationHandle;

    /// A new allocation with one reference; returns its number.
    std::uint64_t created(Handle handle);

    /// cuMemRetainAllocationHandle gave the handle out once more.
    void retained(Handle handle);

    void mapped(CUdeviceptr address, std::size_t bytes, Handle handle);

    /// The numbers of allocations that died with the call.
    std::vector<std::uint64_t> unmapped(CUdeviceptr address, std::size_t bytes);
    std::vector<std::uint64_t> released(Handle handle);

  private:
    struct Allocation {
        int handles = 1;
        int mappings = 0;
    };
    struct Mapping {
        std::size_t bytes;
        std::uint64_t number;
    };

    void erase_if_dead(std::uint64_t number, std::vector<std::uint64_t>& dead);

    std::mutex mutex_;
    std::uint64_t next_number_ = 1;
    std::unordered_map<Handle, std::uint64_t> numbers_;
    std::unordered_map<std::uint64_t, Allocation> allocations_;
    std::map<CUdeviceptr, Mapping> mappings_;
};

/// The process's one, never destroyed.
VmmAllocations& vmm_allocations();

}  // namespace memlab::interpose
