// The numbers of stacks with Python frames, by what they are merged of: the native stack, the
// Python frames and where on the stack their activations lie. Nearly every stack was seen before,
// and then there is nothing to merge.
//
// A table that is read and written without a lock. Sets of four entries, a line of the cache; where
// a set is full, one of its stacks makes room and is merged anew when it comes again. An entry is
// two words, of which the first is also made from the second: a reader that sees halves of two
// writes finds neither's stack.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "profiler/python/frames.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/stack_hash.hpp"

namespace memlab::profiler::python {

/// What merging `native` and `python` depends on. The frames must have their numbers. `epoch`: as
/// in StackTable::id_of().
StackHash hash_of_parts(const StackView& native, const Frames& python, std::uint64_t epoch);

/// Thread-safety: any number of threads.
class MergedStackCache {
  public:
    static constexpr std::size_t sets = 1024;
    static constexpr std::size_t set_size = 4;

    /// Throws std::bad_alloc.
    MergedStackCache() : sets_(std::make_unique<Set[]>(sets)) {}

    /// 0: not known.
    std::uint32_t find(const StackHash& hash) const {
        for (const Entry& entry : set_of(hash).entries) {
            const std::uint64_t id = entry.id.load(std::memory_order_acquire);
            if ((entry.check_and_id.load(std::memory_order_acquire) ^ id) == hash.check &&
                id != 0) {
                return static_cast<std::uint32_t>(id);
            }
        }
        return 0;
    }

    /// `id` must not be 0.
    void keep(const StackHash& hash, std::uint32_t id) {
        std::array<Entry, set_size>& entries = set_of(hash).entries;
        Entry* room = &entries[hash.check % set_size];
        for (Entry& entry : entries) {
            if (entry.id.load(std::memory_order_relaxed) == 0) {
                room = &entry;
                break;
            }
        }
        room->id.store(id, std::memory_order_release);
        room->check_and_id.store(hash.check ^ id, std::memory_order_release);
    }

  private:
    struct Entry {
        std::atomic<std::uint64_t> id;
        std::atomic<std::uint64_t> check_and_id;
    };
    struct alignas(64) Set {
        std::array<Entry, set_size> entries;
    };

    Set& set_of(const StackHash& hash) const { return sets_[hash.place % sets]; }

    const std::unique_ptr<Set[]> sets_;
};

}  // namespace memlab::profiler::python
