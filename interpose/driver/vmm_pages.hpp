// Virtual address ranges and their physical pages, for the pool's expandable segments: the driver's
// virtual memory management behind four calls.
//
// Every chunk of the pool's is a separate physical allocation, because cuMemUnmap takes
// whole mappings only. Its handle is released right after mapping; the mapping keeps the memory.
// Access is granted to the context's device, to every device with peer access, and to every device
// from which the program copies: the driver copies mapped memory only where the current context's
// device may access it, memory from cuMemAlloc everywhere. The memory supports GPUDirect RDMA where
// the device supports that for VMM allocations.
//
// Chunks can be away: their contents are kept elsewhere and their addresses stay reserved, until
// they are mapped there again (interpose/moving/away_chunks.cpp; who moves them: mover.hpp there).
// To everybody else they are mapped all the time: one that is away can be unmapped, which drops its
// contents, and access to it granted, which it has when it is back.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/function_ref.hpp"
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

/// What a chunk held that is away. Destroyed when the chunk is back, or was unmapped meanwhile.
class KeptContents {
  public:
    KeptContents() = default;
    KeptContents(const KeptContents&) = delete;
    KeptContents& operator=(const KeptContents&) = delete;
    virtual ~KeptContents() = default;
};

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

    /// Memory at this address is known to others than this process's work (another process, a
    /// network card): its chunks never go away.
    void must_stay(std::uint64_t address, std::uint64_t bytes);

    // Moving. One thread at a time; from begin_move() to end_move() calls of others that map, unmap
    // or grant access wait. All but end_move() may throw std::bad_alloc, before anything happens.

    struct MovableChunk {
        std::uint64_t address = 0;
        std::uint64_t bytes = 0;
        bool stays = false;
    };
    /// The chunks that are mapped. Empty, too, where the driver does not say what they are; then
    /// *unknown is how many bytes are mapped.
    std::vector<MovableChunk> begin_move(std::uint64_t* unknown);
    void end_move();

    /// Unmaps a chunk of begin_move() and releases its memory. On an error it is as before.
    CUresult take_out(const MovableChunk& chunk, std::unique_ptr<KeptContents> contents);

    /// Gets memory for all that is away, without mapping it; all of it or nothing.
    CUresult get_memory();
    /// Gives back what get_memory() got.
    void return_memory();
    /// Maps it and grants access; all of it or nothing. Then the contents can be copied.
    CUresult map_memory();
    /// Unmaps what map_memory() has mapped; return_memory() gives it back.
    void unmap_memory();
    /// What is away, by address.
    void for_each_away(
        FunctionRef<void(std::uint64_t address, std::uint64_t bytes, KeptContents& contents)>
            visit);

    struct Away {
        std::uint64_t bytes = 0;
        std::unique_ptr<KeptContents> contents;
        CUmemGenericAllocationHandle handle = 0;
    };
    using AwayChunks = std::map<std::uint64_t, Away>;
    /// All of that is back. The caller destroys what is returned, which may take its time.
    AwayChunks came_back();

    /// Bytes that are away. Takes no lock.
    std::uint64_t away_bytes() const { return away_bytes_.load(std::memory_order_relaxed); }
    /// Whether any chunk was ever away.
    bool was_moved() const { return was_moved_.load(std::memory_order_relaxed); }
    /// Whether the memory at this address is away. A load while nothing is.
    bool is_away(std::uint64_t address);
    /// Bytes that are mapped, those that are away included.
    std::uint64_t mapped_bytes();

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
    void wait_for_move() MEMLAB_REQUIRES(mutex_);
    /// Unmaps what is there and forgets what is away.
    CUresult unmap_present(std::uint64_t address, std::uint64_t bytes) MEMLAB_REQUIRES(mutex_);
    CUresult set_access_where_present(std::uint64_t start, std::uint64_t end,
                                      const CUmemAccessDesc& access) MEMLAB_REQUIRES(mutex_);
    /// Calls visit(start, end) for each part that is not away, until one returns an error.
    CUresult for_each_present(std::uint64_t start, std::uint64_t end,
                              FunctionRef<CUresult(std::uint64_t, std::uint64_t)> visit) const
        MEMLAB_REQUIRES(mutex_);
    std::vector<CUmemAccessDesc> accesses() const MEMLAB_REQUIRES(mutex_);
    bool stays(std::uint64_t address, std::uint64_t bytes) const MEMLAB_REQUIRES(mutex_);

    const CUdevice device_;
    threads::Mutex mutex_;
    CUmemAllocationProp properties_ MEMLAB_GUARDED_BY(mutex_){};
    enum class Support : std::uint8_t { unknown, no, yes };
    Support support_ MEMLAB_GUARDED_BY(mutex_) = Support::unknown;
    std::atomic<bool> shareable_{false};  ///< so far all memory has the POSIX handle type
    std::vector<CUdevice> accessors_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<std::uint64_t> copies_allowed_{0};  ///< a bit for each device
    std::map<std::uint64_t, std::uint64_t> reserved_ MEMLAB_GUARDED_BY(mutex_);  ///< start to size
    Ranges mapped_ MEMLAB_GUARDED_BY(mutex_);    ///< adjacent ones are merged
    AwayChunks away_ MEMLAB_GUARDED_BY(mutex_);  ///< parts of these
    std::atomic<std::uint64_t> away_bytes_{0};
    std::atomic<bool> was_moved_{false};
    bool moving_ MEMLAB_GUARDED_BY(mutex_) = false;
    threads::ConditionVariable moved_;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> staying_
        MEMLAB_GUARDED_BY(mutex_);  ///< start and end
};

}  // namespace memlab::interpose
