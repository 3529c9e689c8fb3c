// Which functions and executable graphs were launched before: only a first launch can load code,
// resize local memory or upload a graph, and only that is measured.
//
// Every launch of a kernel looks here, mostly with cold caches: the usual way is a multiplication
// and one load. The table is bounded and forgets what others displace, which is then measured once
// more.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trace/hash_index.hpp"

namespace memlab::interpose {

/// Sets of 8 keys, each set a cache line. Thread-safety: all functions, from any thread, lock-free.
/// Constant-initialized: empty before main.
class Launched {
  public:
    using Key = std::uintptr_t;

    /// Of one of the driver's handles.
    static Key key(const void* handle) { return reinterpret_cast<Key>(handle); }
    /// In one of several contexts; no handle's own key, since those are even.
    static Key key(const void* handle, const void* context) {
        return trace::HashIndex::mix(trace::HashIndex::mix(key(handle)) + key(context)) | 1U;
    }

    /// False where knows() has to tell.
    [[gnu::always_inline]] bool knows_at_once(const void* handle) const {
        return at(place_of(key(handle))) == key(handle);
    }

    bool knows(Key key) const {
        const std::size_t place = place_of(key);
        for (std::size_t i = 0; i < set_size; ++i) {
            if (at(place ^ i) == key) {
                return true;
            }
        }
        return false;
    }

    /// `generation`: of before the launch, so that a clear() or forget() meanwhile is not undone.
    void insert(Key key, std::uint64_t generation) {
        const std::size_t place = place_of(key);
        std::size_t free = place;  // else it displaces the one that is found at once
        for (std::size_t i = 0; i < set_size && at(free) != none; ++i) {
            free = place ^ i;
        }
        if (generation == this->generation()) {
            keys_[at(free) == none ? free : place].store(key, std::memory_order_relaxed);
        }
    }

    std::uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

    /// The handle may become another's.
    void forget(Key key) {
        generation_.fetch_add(1, std::memory_order_relaxed);
        const std::size_t place = place_of(key);
        for (std::size_t i = 0; i < set_size; ++i) {
            Key expected = key;
            keys_[place ^ i].compare_exchange_strong(expected, none, std::memory_order_relaxed);
        }
    }

    /// Code was unloaded, or a context began or ended: handles may become those of others.
    void clear() {
        generation_.fetch_add(1, std::memory_order_relaxed);
        for (std::atomic<Key>& each : keys_) {
            each.store(none, std::memory_order_relaxed);
        }
    }

  private:
    static constexpr unsigned bits = 12;
    static constexpr std::size_t set_size = 8;
    static constexpr Key none = 0;

    static std::size_t place_of(Key key) { return (key * 0x9e3779b97f4a7c15) >> (64U - bits); }
    Key at(std::size_t place) const { return keys_[place].load(std::memory_order_relaxed); }

    std::atomic<std::uint64_t> generation_{0};
    alignas(64) std::array<std::atomic<Key>, std::size_t{1} << bits> keys_{};
};

extern constinit Launched launched;

}  // namespace memlab::interpose
