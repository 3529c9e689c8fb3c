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
#include <unordered_map>
#include <vector>

#include "interpose/function_ref.hpp"
#include "profiler/trace/record.hpp"

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

    /// Live bytes of each kind on a device. O(allocations).
    std::array<std::uint64_t, static_cast<std::size_t>(trace::memory_kind_count)> bytes_by_kind(
        std::uint32_t device) const;

    /// The context is gone and its memory with it.
    void remove_context(std::uint32_t context);

  private:
    struct Key {
        HandleClass handles;
        std::uint64_t address;
        bool operator==(const Key&) const = default;
    };
    struct Hash {
        std::size_t operator()(const Key& key) const {
            return std::hash<std::uint64_t>()(key.address * 4 +
                                              static_cast<std::uint64_t>(key.handles));
        }
    };
    struct Entry {
        LiveAllocation allocation;
        bool freeing = false;
    };

    /// Memory whose free is under way: [begin, end).
    struct Leaving {
        std::uint64_t begin;
        std::uint64_t end;
    };
    bool is_leaving(const Key& key, const LiveAllocation& allocation) const;

    mutable std::mutex mutex_;
    std::unordered_map<Key, Entry, Hash> entries_;
    std::vector<Leaving> leaving_;  ///< one a thread at most
};

}  // namespace memlab::interpose
