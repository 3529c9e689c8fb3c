// The live allocations that the driver itself serves, so that a free knows what it frees.
//
// A free must be recorded before the driver can hand the same address to another thread, and only
// if it succeeds. So it has two halves around the real call: begin_free keeps the entry but marks
// it; an allocation that receives any of its bytes meanwhile waits in add() until finish_free.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "interpose/driver/function_ref.hpp"
#include "trace/hash_index.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

/// Address spaces that may hold equal numbers.
enum class HandleClass : std::uint8_t { memory, array, mipmapped_array, vmm_allocation };

struct LiveAllocation {
    trace::MemoryKind kind = trace::MemoryKind::device;
    std::uint32_t device = 0;
    std::uint32_t context = 0;
    std::uint64_t requested = 0;
};

/// Thread-safety: all functions, from any thread.
class LiveAllocations {
  public:
    /// Told of an allocation; `record` runs in the entry's turn. Out of host memory the entry is
    /// not kept and nothing recorded: false.
    bool add(HandleClass handles, std::uint64_t address, const LiveAllocation& allocation,
             FunctionRef<void()> record);

    /// Nothing when the address is unknown, or its free is already under way.
    std::optional<LiveAllocation> begin_free(HandleClass handles, std::uint64_t address);

    /// After the real free: `freed` says whether it succeeded; then `record` runs and the entry
    /// goes, else the entry is live again.
    void finish_free(HandleClass handles, std::uint64_t address, bool freed,
                     FunctionRef<void()> record);

    std::optional<LiveAllocation> find(HandleClass handles, std::uint64_t address) const;

    /// Live bytes of each kind on a device.
    using BytesByKind =
        std::array<std::uint64_t, static_cast<std::size_t>(trace::memory_kind_count)>;
    BytesByKind bytes_by_kind(std::uint32_t device) const;

    /// The context is gone and its memory with it.
    void remove_context(std::uint32_t context);

  private:
    struct Entry {
        std::uint64_t address = 0;
        LiveAllocation allocation;
        HandleClass handles = HandleClass::memory;
        bool freeing = false;
    };

    /// Memory whose free is under way: [begin, end).
    struct Leaving {
        std::uint64_t begin;
        std::uint64_t end;
    };
    bool is_leaving(std::uint32_t place, HandleClass handles, std::uint64_t address,
                    const LiveAllocation& allocation) const;

    static std::uint64_t hash(HandleClass handles, std::uint64_t address) {
        return trace::HashIndex::spread(address + static_cast<std::uint64_t>(handles));
    }
    std::uint32_t place_of(HandleClass handles, std::uint64_t address) const;
    bool is_at(std::uint32_t place, HandleClass handles, std::uint64_t address) const {
        const Entry& entry = entries_[place];
        return entry.address == address && entry.handles == handles;
    }
    void put(std::uint32_t known, const Entry& entry);
    void erase(std::uint32_t place);
    std::uint64_t& bytes_of(const LiveAllocation& allocation);

    mutable std::mutex mutex_;
    // Packed: the last one takes the place of one that goes. No memory is asked for but when they
    // become more than ever before.
    std::vector<Entry> entries_;
    trace::HashIndex index_;
    std::uint32_t last_begun_ = 0;    ///< place of the last free that began: it mostly ends next
    std::vector<BytesByKind> bytes_;  ///< by device
    std::vector<Leaving> leaving_;    ///< one a thread at most
};

}  // namespace memlab::interpose
