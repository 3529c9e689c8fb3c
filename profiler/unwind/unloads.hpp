// The unload epoch, which invalidates everything cached by code address.
//
// Unwind rules and call sites are cached by address, and dlclose frees addresses for other
// libraries. libmemlab.so therefore interposes dlclose: while one runs the caches are bypassed, and
// if it has unloaded something the epoch advances. Comparing _dl_find_object's result once per
// capture would find most replacements, but not a rebuilt plugin of the same size at the same
// address; the loader's count of unloaded objects (dl_iterate_phdr) misses none, and is only read
// in dlclose.
//
// A dlclose call that bypasses the interposition (RTLD_DEEPBIND, another namespace) is detected
// when the next rule is made for an object at the old one's address; the epoch advances then (see
// modules.hpp).
#pragma once

#include <atomic>
#include <cstdint>

namespace memlab::profiler::unwind {

namespace unload_state {
extern constinit std::atomic<std::uint64_t> epoch;
extern constinit std::atomic<int> running;
}  // namespace unload_state

/// Increases when an object is unloaded. An entry cached under another epoch may be about other
/// code. Async-signal-safe; one load.
inline std::uint64_t unload_epoch() {
    return unload_state::epoch.load(std::memory_order_acquire);
}

/// True while a dlclose is running on any thread: nothing may be cached, since the code may be
/// about to go. Async-signal-safe; one load.
inline bool is_unloading() {
    return unload_state::running.load(std::memory_order_acquire) != 0;
}

/// Lives around the call of the real dlclose.
class Unloading {
  public:
    Unloading();
    ~Unloading();
    Unloading(const Unloading&) = delete;
    Unloading& operator=(const Unloading&) = delete;
};

/// Advances the epoch for an unload that bypassed the interposed dlclose. Async-signal-safe.
void report_missed_unload();

/// The epoch of one cache by code address. Thread-safe.
class EpochTracker {
  public:
    /// Of no epoch: stale at first.
    static constexpr std::uint64_t never = ~std::uint64_t{0};

    constexpr EpochTracker() = default;
    constexpr explicit EpochTracker(std::uint64_t epoch) : epoch_(epoch) {}

    bool is_stale() const { return epoch_.load(std::memory_order_acquire) != unload_epoch(); }

    /// Calls `clear`, which empties the cache, and adopts the present epoch. Several threads may do
    /// so at once.
    template <class Clear>
    void refresh(const Clear& clear) {
        const std::uint64_t now = unload_epoch();
        clear();
        epoch_.store(now, std::memory_order_release);
    }

  private:
    std::atomic<std::uint64_t> epoch_{1};
};

/// Something that was found in the loaded objects, and is searched again after one was unloaded.
/// Thread-safe; several threads may search at once.
template <class Value>
class FoundUntilUnload {
  public:
    constexpr FoundUntilUnload() = default;

    template <class Find>
    Value get(const Find& find) {
        if (is_unloading()) {
            return find();
        }
        if (searched_.is_stale()) {
            searched_.refresh([&] { found_.store(find(), std::memory_order_relaxed); });
        }
        return found_.load(std::memory_order_relaxed);
    }

  private:
    EpochTracker searched_{EpochTracker::never};
    std::atomic<Value> found_{};
};

/// In a forked child: drops the dlclose calls of the parent's other threads, which never end.
void reset_unloads_after_fork();

}  // namespace memlab::profiler::unwind
