// Which code a context was asked for already: runtimes ask for a kernel at each launch, and only
// the first time can load it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trace/hash_index.hpp"

namespace memlab::interpose {

/// A direct-mapped cache of hashes of (handle, context): it forgets what others displace, and takes
/// two pairs of one 64-bit hash for the same. Thread-safety: all functions, from any thread,
/// lock-free.
class LoadedCode {
  public:
    /// Of a pair of the driver's handles, until the next clear().
    std::uint64_t tag(const void* code, const void* context) const {
        const std::uint64_t generation = generation_.load(std::memory_order_relaxed);
        const std::uint64_t pair = trace::HashIndex::mix(reinterpret_cast<std::uintptr_t>(code)) +
                                   reinterpret_cast<std::uintptr_t>(context);
        return trace::HashIndex::mix(pair + generation * golden) | not_empty;
    }

    bool contains(std::uint64_t tag) const {
        return tags_[place_of(tag)].load(std::memory_order_relaxed) == tag;
    }
    /// `tag`: of before the call that loaded the code, so that a clear() meanwhile is not undone.
    void insert(std::uint64_t tag) { tags_[place_of(tag)].store(tag, std::memory_order_relaxed); }

    /// Code was unloaded or a context ended: handles may become those of others.
    void clear() { generation_.fetch_add(1, std::memory_order_relaxed); }

  private:
    static constexpr std::size_t size = 4096;
    static constexpr std::uint64_t not_empty = 1;
    static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;  // distinct for each generation

    static std::size_t place_of(std::uint64_t tag) { return (tag >> 32U) % size; }

    std::atomic<std::uint64_t> generation_{0};
    std::array<std::atomic<std::uint64_t>, size> tags_{};
};

}  // namespace memlab::interpose
