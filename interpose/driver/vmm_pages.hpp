// Virtual address ranges and their physical pages, for the pool's expandable segments: the driver's
// virtual memory management behind four calls.
//
// Every chunk of the pool's is a separate physical allocation, because cuMemUnmap takes
// whole mappings only. Its handle is released right after mapping; the mapping keeps the memory.
// Access is granted to the context's device, to every device with peer access, and to every device
// from which the program copies: the driver copies mapped memory only where the current context's
// device may access it, memory from cuMemAlloc everywhere. The memory supports GPUDirect RDMA where
// the device supports that for VMM allocations.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

/// A device's access to mapped memory, for cuMemSetAccess.
inline CUmemAccessDesc access_of(CUdevice device, CUmemAccess_flags flags) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = flags;
    return access;
}

/// Thread-safety: all functions, from any thread. Lock order: pool -> this.
class VmmPages {
  public:
    explicit VmmPages(CUdevice device);

    static constexpr std::uint64_t page = 2ULL << 20;

    /// Reserves addresses, no memory. CUDA_ERROR_NOT_SUPPORTED where the device or the driver has
    /// no virtual memory management, or not in pages of 2 MiB, or where one of the devices that the
    /// program sees cannot access this one's memory.
    CUresult reserve(std::uint64_t bytes, std::uint64_t* base);
    /// CUDA_ERROR_INVALID_VALUE after release_all(); so do map() and unmap().
    CUresult release(std::uint64_t base, std::uint64_t bytes);

    /// Maps memory at [address, address + bytes), multiples of `page`, in pieces of `chunk` bytes
    /// from the beginning; all of it or nothing.
    CUresult map(std::uint64_t address, std::uint64_t bytes, std::uint64_t chunk);
    /// Unmaps and releases the memory: whole chunks. No work may be using it.
    CUresult unmap(std::uint64_t address, std::uint64_t bytes);

    /// Whether the memory at an address can be exported as a file descriptor.
    bool can_share(std::uint64_t address) { return shareable_.load() && owns(address); }

    /// Whether the address is in a range reserved here.
    bool owns(std::uint64_t address);

    /// The context was destroyed: releases everything. Physical pages outlive a context.
    void release_all();

    /// A context on `accessor` may (or may no longer) use the memory, both mapped and to be mapped.
    CUresult set_peer(CUdevice accessor, bool enabled);

    /// Copies may be made in contexts on `accessor` from now on, with peer access or without.
    /// Cheap when they are allowed already.
    void allow_copies(CUdevice accessor) {
        if (accessor != device_ &&
            (copies_allowed_.load(std::memory_order_relaxed) & bit(accessor)) == 0) {
            allow_first_copy(accessor);
        }
    }

  private:
    static std::uint64_t bit(CUdevice device) {
        return device >= 0 && device < 64 ? std::uint64_t{1} << device : 0;
    }
    bool supported() MEMLAB_REQUIRES(mutex_);
    bool accessible_to_all() const MEMLAB_REQUIRES(mutex_);
    void allow_first_copy(CUdevice accessor);
    CUresult grant(CUdevice accessor, bool enabled) MEMLAB_REQUIRES(mutex_);
    CUresult map_chunk(std::uint64_t address, std::uint64_t bytes) MEMLAB_REQUIRES(mutex_);
    bool owns_locked(std::uint64_t address) const MEMLAB_REQUIRES(mutex_);
    using Ranges = std::map<std::uint64_t, std::uint64_t>;  // start to end
    void insert_mapped(Ranges::node_type range) noexcept MEMLAB_REQUIRES(mutex_);
    void erase_mapped(std::uint64_t address, std::uint64_t bytes) noexcept MEMLAB_REQUIRES(mutex_);

    const CUdevice device_;
    threads::Mutex mutex_;
    CUmemAllocationProp properties_ MEMLAB_GUARDED_BY(mutex_){};
    enum class Support : std::uint8_t { unknown, no, yes };
    Support support_ MEMLAB_GUARDED_BY(mutex_) = Support::unknown;
    std::atomic<bool> shareable_{false};  ///< so far all memory has the POSIX handle type
    std::vector<CUdevice> accessors_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<std::uint64_t> copies_allowed_{0};  ///< a bit for each device
    std::map<std::uint64_t, std::uint64_t> reserved_ MEMLAB_GUARDED_BY(mutex_);  ///< start to size
    Ranges mapped_ MEMLAB_GUARDED_BY(mutex_);  ///< adjacent ones are merged
};

}  // namespace memlab::interpose
