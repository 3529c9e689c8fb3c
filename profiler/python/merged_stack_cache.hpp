// A 4-way set-associative cache of merged stacks' ids, by the hash of their parts: the native
// stack, the Python frames and the stack addresses of their activations. A hit saves the merge.
//
// Read and written without a lock; a set is one cache line. An entry is two words, the first of
// which is XORed with the second: a reader that sees a torn write finds no match.
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

/// Hashes all that the merge of a native stack and `python` depends on. `native`: hash_frames() of
/// that stack. The frames must have their ids.
StackHash hash_parts(const StackHash& native, const Frames& python);

/// Thread-safety: any number of threads.
class MergedStackCache {
  public:
    static constexpr std::size_t sets = 1024;
    static constexpr std::size_t set_size = 4;

    /// Throws std::bad_alloc.
    MergedStackCache() : sets_(std::make_unique<Set[]>(sets)) {}

    /// The id; 0: not cached.
    std::uint32_t find(const StackHash& hash) const {
        for (const Entry& entry : set(hash).entries) {
            const std::uint64_t id = entry.id.load(std::memory_order_acquire);
            if ((entry.check_and_id.load(std::memory_order_acquire) ^ id) == hash.check &&
                id != 0) {
                return static_cast<std::uint32_t>(id);
            }
        }
        return 0;
    }

    /// `id` must not be 0. May evict another stack.
    void insert(const StackHash& hash, std::uint32_t id) {
        std::array<Entry, set_size>& entries = set(hash).entries;
        Entry* target = &entries[hash.check % set_size];
        for (Entry& entry : entries) {
            if (entry.id.load(std::memory_order_relaxed) == 0) {
                target = &entry;
                break;
            }
        }
        target->id.store(id, std::memory_order_release);
        target->check_and_id.store(hash.check ^ id, std::memory_order_release);
    }

  private:
    struct Entry {
        std::atomic<std::uint64_t> id;
        std::atomic<std::uint64_t> check_and_id;
    };
    struct alignas(64) Set {
        std::array<Entry, set_size> entries;
    };

    Set& set(const StackHash& hash) const { return sets_[hash.index % sets]; }

    const std::unique_ptr<Set[]> sets_;
};

}  // namespace memlab::profiler::python
