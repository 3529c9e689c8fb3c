// Maps a device address to the context whose pool owns it. Used for every pointer that the program
// passes in: a lookup costs two loads and no lock.
//
// A two-level table over pages of 2 MiB, the driver's own granularity for segments. Leaves are
// created on demand and never freed, because a concurrent lookup may be in one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "threads/mutex.hpp"

namespace memlab::interpose {

class Context;

/// Thread-safety: all functions, from any thread; find() never blocks. Lock order: pool -> index.
class SegmentIndex {
  public:
    SegmentIndex() = default;
    SegmentIndex(const SegmentIndex&) = delete;
    SegmentIndex& operator=(const SegmentIndex&) = delete;
    ~SegmentIndex();

    static constexpr std::uint64_t page = 2ULL << 20;

    /// `address` and `bytes` must be multiples of `page`, the range below 2^48. Replaces stale
    /// entries (of a context that was destroyed unseen). False, with nothing changed, when the
    /// range is invalid or the host is out of memory.
    bool add(std::uint64_t address, std::uint64_t bytes, Context* owner);
    /// Removes the pages of the range that belong to `owner`.
    void remove(std::uint64_t address, std::uint64_t bytes, const Context* owner);
    void remove_all(const Context* owner);

    /// The owner of the segment that holds `address`, or null.
    Context* find(std::uint64_t address) const {
        if (address >> address_bits != 0) {
            return nullptr;
        }
        const Leaf* leaf = leaves_[address >> leaf_shift].load(std::memory_order_acquire);
        return leaf == nullptr ? nullptr
                               : leaf->owners[(address >> page_shift) % pages_per_leaf].load(
                                     std::memory_order_relaxed);
    }

  private:
    static constexpr unsigned address_bits = 48;  // of a canonical user-space address
    static constexpr unsigned page_shift = 21;
    static constexpr std::uint64_t pages_per_leaf = 1ULL << 13;
    static constexpr unsigned leaf_shift = page_shift + 13;

    struct Leaf {
        std::array<std::atomic<Context*>, pages_per_leaf> owners{};
    };

    threads::Mutex mutex_;  // held by writers, of leaves_ and of all leaves
    std::array<std::atomic<Leaf*>, 1ULL << (address_bits - leaf_shift)> leaves_{};
};

}  // namespace memlab::interpose
