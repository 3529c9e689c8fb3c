// Physical memory that the program creates and maps itself (cuMemCreate, cuMemMap: PyTorch's
// expandable segments, vLLM's sleep mode, JAX's `platform`), so that it can leave the GPU and come
// back: created again with the same properties, mapped at the same addresses with the same access.
//
// With MEMLAB_YIELD=on the handle that the program sees is memlab's, since the driver's is another
// one each time that the memory comes back. Every function that takes a handle translates it. The
// driver counts one reference of the program's, however many it has; the others are counted here.
//
// Not followed, so never moved, is what others may know: memory from or for other processes (its
// handle was exported once), memory of NCCL's, of sparse arrays, on the host. Nor is what was
// created before memlab looked.
//
// Its memory is copied through a window of memlab's own: all of it once, mapped or not, however
// often it is mapped.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/function_ref.hpp"
#include "interpose/memory/memory.hpp"
#include "interpose/moving/kept_memory.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread. Those for the program make the driver's call
/// themselves, by `real`, with the lock, and return what it returned; where the memory has to be
/// there the caller has passed the gate. Call without any of memlab's locks.
class ProgramHandles {
  public:
    using Handle = CUmemGenericAllocationHandle;

    // ---- for the program

    /// What the program is to see in place of the driver's handle of new memory: that itself where
    /// the memory is not followed. Throws std::bad_alloc: then the driver's.
    Handle created(Handle driver, std::size_t bytes, const CUmemAllocationProp* properties,
                   unsigned long long flags);
    /// The number of its recording (LiveAllocations).
    void set_number(Handle seen, std::uint64_t number);
    /// The driver's handle.
    Handle driver_handle(Handle seen);
    /// The same for somebody who may keep it: the memory stays from now on.
    Handle given_away(Handle seen);
    /// So does what is mapped there.
    void must_stay(CUdeviceptr address, std::size_t bytes);

    CUresult release(Handle seen, FunctionRef<CUresult(Handle)> real);
    CUresult retain(Handle* seen, CUdeviceptr address, FunctionRef<CUresult(Handle*)> real);
    CUresult properties(CUmemAllocationProp* properties, Handle seen,
                        FunctionRef<CUresult(Handle)> real);
    CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset, Handle seen,
                 FunctionRef<CUresult(Handle)> real);
    CUresult unmap(CUdeviceptr address, std::size_t bytes,
                   FunctionRef<CUresult(CUdeviceptr, std::size_t)> real);
    CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count, FunctionRef<CUresult()> real);
    /// Whether something that is away is mapped in this range. A load while nothing is away.
    bool is_away(CUdeviceptr address, std::size_t bytes = 1);
    /// Whether a mapping of the program's is not there. A load.
    bool any_absent() const { return absent_.load() != 0; }

    /// In a forked child, which has none of it: what is kept was not inherited.
    void forget_after_fork() noexcept;

    // ---- for the mover, one thread

    std::uint64_t movable_bytes(CUdevice device);
    /// Of these the numbers of their recording. May throw std::bad_alloc.
    std::set<std::uint64_t> movable_numbers(CUdevice device);
    /// Of the device (-1: of all). Takes no lock.
    std::uint64_t away_bytes(CUdevice device) const;
    bool was_moved(CUdevice device) const;

    /// Between begin_move() and end_move() calls of the program's wait that need the driver.
    void begin_move();
    void end_move();

    /// Contexts in which memory of their devices is copied.
    using Contexts = std::map<CUdevice, CUcontext>;

    /// Chooses what leaves: what may, of the devices of these contexts, except so many bytes of a
    /// device; `kept` is what stays there anyway, by device. Returns how much that is.
    std::uint64_t choose(const Contexts& contexts, std::vector<std::uint64_t> kept,
                         std::uint64_t kept_bytes);
    /// Copies it. Empty, or why not: then everything is as before. May throw std::bad_alloc: the
    /// same.
    std::string copy_out(const Contexts& contexts, KeptRoom& room, const std::atomic<bool>& stop);
    /// Unmaps and releases it. What cannot be unmapped stays. Returns how much has left.
    std::uint64_t take_out(const std::atomic<bool>& stop);

    /// The devices of what is away.
    std::vector<CUdevice> devices_away();
    /// Gets memory for all that is away, or none. Out of memory: *device is whose.
    CUresult get_memory(CUdevice* device);
    void return_memory();
    /// Maps it for the program and copies the contents; all of it or nothing. May throw
    /// std::bad_alloc: nothing.
    bool fill(const Contexts& contexts, const std::atomic<bool>& stop,
              FunctionRef<bool(CUcontext)> is_broken);
    /// All of it is back; its contents, for the caller to destroy.
    std::vector<std::unique_ptr<HeldContents>> came_back(std::uint64_t* bytes) noexcept;

  private:
    struct Allocation {
        std::uint64_t id = 0;
        Handle seen = 0;          ///< 0: the program has no handle of it
        unsigned references = 0;  ///< of the program's handle
        Handle driver = 0;        ///< where the program has a handle and the memory is there
        Handle own = 0;           ///< of memlab's own, while it moves
        std::size_t bytes = 0;
        CUmemAllocationProp wanted{};
        CUmemAllocationProp answered{};  ///< by the driver, when it left
        unsigned long long flags = 0;
        std::uint64_t number = 0;
        std::vector<CUdeviceptr> places;  ///< where it is mapped
        bool stays = false;
        bool leaving = false;
        bool away = false;
        bool made = false;  ///< `own` is new memory, for what is away
        CUdeviceptr window = 0;
        std::unique_ptr<HeldContents> contents;

        CUdevice device() const { return wanted.location.id; }
        Handle handle() const { return driver != 0 ? driver : own; }
    };
    struct Mapping {
        std::size_t bytes = 0;
        std::size_t offset = 0;
        std::uint64_t allocation = 0;
        bool present = true;
        std::vector<CUmemAccessDesc> access;
    };
    using Allocations = std::map<std::uint64_t, Allocation>;
    using Mappings = std::map<CUdeviceptr, Mapping>;

    static constexpr Handle first_seen = 0x6d65'6d6c'0000'0000;
    static bool may_be_ours(Handle handle) { return handle >> 32 == first_seen >> 32; }

    Allocation* find(Handle seen) MEMLAB_REQUIRES(mutex_);
    Mappings::iterator first_mapping(CUdeviceptr address) MEMLAB_REQUIRES(mutex_);
    void wait_for_move() MEMLAB_REQUIRES(mutex_);
    void give_handle(Allocation& allocation) MEMLAB_REQUIRES(mutex_);
    void drop_if_dead(std::uint64_t id) noexcept MEMLAB_REQUIRES(mutex_);
    void drop_mapping(Mappings::iterator mapping) noexcept MEMLAB_REQUIRES(mutex_);
    static bool may_leave(const Allocation& allocation, CUdevice device);
    /// Maps what leaves or returns for memlab, and lets its devices access it.
    CUresult open_windows() MEMLAB_REQUIRES(mutex_);
    void close_windows() noexcept MEMLAB_REQUIRES(mutex_);
    bool map_places(const Allocation& allocation) MEMLAB_REQUIRES(mutex_);
    bool is_complete(const Allocation& allocation) const MEMLAB_REQUIRES(mutex_);
    bool is_unmapped(const Allocation& allocation) const MEMLAB_REQUIRES(mutex_);
    void let_stay(Allocation& allocation) noexcept MEMLAB_REQUIRES(mutex_);
    void unmap_places(const Allocation& allocation) noexcept MEMLAB_REQUIRES(mutex_);
    bool take_out_one(Allocation& allocation) MEMLAB_REQUIRES(mutex_);
    /// Copies all of these allocations through their windows, without the lock.
    std::string copy(const Contexts& contexts, bool out, const std::atomic<bool>& stop,
                     FunctionRef<bool(CUcontext)> is_broken) MEMLAB_EXCLUDES(mutex_);
    void add_away(CUdevice device, std::int64_t bytes) noexcept;

    threads::Mutex mutex_;
    threads::ConditionVariable moved_;
    bool moving_ MEMLAB_GUARDED_BY(mutex_) = false;
    std::uint64_t next_ MEMLAB_GUARDED_BY(mutex_) = 1;
    Allocations all_ MEMLAB_GUARDED_BY(mutex_);
    std::map<Handle, std::uint64_t> seen_ MEMLAB_GUARDED_BY(mutex_);
    Mappings mappings_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<std::size_t> absent_{0};  ///< mappings of the program that are not there
    CUdeviceptr window_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::size_t window_bytes_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::atomic<std::uint64_t> away_[trace::DeviceInfo::max_gpus] = {};
    std::atomic<bool> was_moved_[trace::DeviceInfo::max_gpus] = {};
};

/// The process-wide instance; never destroyed.
ProgramHandles& program_handles();

/// An argument of a function that may keep the memory of a handle: the driver's handle in place of
/// the program's, all else as it is.
inline CUmemGenericAllocationHandle with_drivers_handle(CUmemGenericAllocationHandle handle) {
    return program_handles().given_away(handle);
}
template <class Other>
Other with_drivers_handle(Other other) {
    return other;
}

}  // namespace memlab::interpose
