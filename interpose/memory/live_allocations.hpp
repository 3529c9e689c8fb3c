// The table of live allocations served by the driver, so that a free knows its allocation.
//
// A free must be recorded before the driver can hand out the address to another thread, and only if
// it succeeds. So it has two halves around the real call: begin_free marks the entry; an allocation
// that receives any of its bytes meanwhile waits in add() until finish_free. The memory of a
// context that is being destroyed is in the same state; that may take long, so an allocation that
// receives it waits before add(): is_leaving(). Nothing is noted when a call begins that may
// destroy a context: most destroy none, and few are looked for.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "interpose/driver/function_ref.hpp"
#include "threads/mutex.hpp"
#include "trace/hash_index.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

/// Address spaces that may hold equal numbers.
enum class HandleClass : std::uint8_t { memory, array, mipmapped_array, vmm_allocation };

struct LiveAllocation {
    trace::MemoryKind kind = trace::MemoryKind::device;
    std::uint32_t device = 0;
    std::uint32_t context = 0;
    std::uint32_t stack = 0;  ///< the call site's, of the recording; 0: not known
    std::uint64_t requested = 0;
};

/// Thread-safety: all functions, from any thread.
class LiveAllocations {
  public:
    /// Adds an allocation; `record` runs under the table's lock, after the record of an overlapping
    /// free. Returns false out of host memory: then nothing is kept or recorded.
    bool add(HandleClass handles, std::uint64_t address, const LiveAllocation& allocation,
             FunctionRef<void()> record);

    /// nullopt when the address is unknown or its free is already under way.
    std::optional<LiveAllocation> begin_free(HandleClass handles, std::uint64_t address);

    /// After the real free. If it succeeded (`freed`), `record` runs and the entry is removed; else
    /// the entry is live again.
    void finish_free(HandleClass handles, std::uint64_t address, bool freed,
                     FunctionRef<void()> record);

    std::optional<LiveAllocation> find(HandleClass handles, std::uint64_t address) const;
    /// The memory that holds the address, and where it begins. Looks at every allocation.
    std::optional<LiveAllocation> find_around(std::uint64_t address, std::uint64_t* begin) const;

    /// Live bytes of each kind on a device.
    using BytesByKind =
        std::array<std::uint64_t, static_cast<std::size_t>(trace::memory_kind_count)>;
    BytesByKind bytes_by_kind(std::uint32_t device) const;
    /// Calls `visit` with each, under the table's lock.
    void for_each(
        FunctionRef<void(HandleClass handles, std::uint64_t address, const LiveAllocation&)> visit)
        const;
    /// Whether the process has, or had, managed memory. Without a lock.
    bool had_managed() const { return had_managed_.load(std::memory_order_relaxed); }

    /// Whether memory in this range is being freed.
    bool is_being_freed(std::uint64_t address, std::uint64_t bytes) const;
    /// Whether memory in this range belongs to a context for which `ends(context)` is true. Looks
    /// at every allocation; `ends` runs under the table's lock.
    bool is_leaving(std::uint64_t address, std::uint64_t bytes,
                    FunctionRef<bool(std::uint32_t)> ends) const;

    /// The context was destroyed, and its memory with it.
    void remove_context(std::uint32_t context);

  private:
    struct Entry {
        std::uint64_t address = 0;
        LiveAllocation allocation;
        HandleClass handles = HandleClass::memory;
        bool freeing = false;
    };

    /// Memory range whose free is under way: [begin, end).
    struct PendingFree {
        std::uint64_t begin;
        std::uint64_t end;
    };
    bool is_being_freed(std::uint32_t slot, HandleClass handles, std::uint64_t address,
                        const LiveAllocation& allocation) const MEMLAB_REQUIRES(mutex_);

    static std::uint64_t hash(HandleClass handles, std::uint64_t address) {
        return trace::HashIndex::spread(address + static_cast<std::uint64_t>(handles));
    }
    std::uint32_t find_slot(HandleClass handles, std::uint64_t address) const
        MEMLAB_REQUIRES(mutex_);
    bool matches(std::uint32_t slot, HandleClass handles, std::uint64_t address) const
        MEMLAB_REQUIRES(mutex_) {
        const Entry& entry = entries_[slot];
        return entry.address == address && entry.handles == handles;
    }
    void put(std::uint32_t known, const Entry& entry) MEMLAB_REQUIRES(mutex_);
    void erase(std::uint32_t slot) MEMLAB_REQUIRES(mutex_);
    std::uint64_t& live_bytes(const LiveAllocation& allocation) MEMLAB_REQUIRES(mutex_);

    mutable threads::Mutex mutex_;
    // Packed: on removal the last entry moves into the freed slot. Grows only beyond its previous
    // maximum, so the steady state does not allocate.
    std::vector<Entry> entries_ MEMLAB_GUARDED_BY(mutex_);
    trace::HashIndex index_ MEMLAB_GUARDED_BY(mutex_);
    /// Slot of the most recent begin_free(): usually the next to finish.
    std::uint32_t last_begun_slot_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::vector<BytesByKind> bytes_ MEMLAB_GUARDED_BY(mutex_);  ///< by device
    std::atomic<bool> had_managed_{false};
    std::vector<PendingFree> pending_frees_ MEMLAB_GUARDED_BY(mutex_);  ///< at most one per thread
};

}  // namespace memlab::interpose
