// Whether what was learned about code addresses still holds.
//
// The rules of the unwinder and the names of call sites are kept by address, and dlclose gives
// addresses back to be used by another library. libmemlab.so therefore stands before dlclose: while
// one runs nothing is kept or answered from what was kept, and when it has unloaded something the
// epoch moves on. Asking _dl_find_object once a capture would find most replacements, but not a
// plugin that was built anew and came back with the same size at the same place; the loader's own
// count of unloaded objects (dl_iterate_phdr) misses none, and is asked in dlclose only.
//
// A library that gets past us (RTLD_DEEPBIND, a namespace of its own) can still close another one.
// Then the next rule that is made for the new object finds that it lies where the old one was, and
// the epoch moves on there (see modules.hpp).
#pragma once

#include <atomic>
#include <cstdint>

namespace memlab::profiler::unwind {

namespace unload_state {
extern constinit std::atomic<std::uint64_t> epoch;
extern constinit std::atomic<int> running;
}  // namespace unload_state

/// Grows when an object was unloaded. What was learned by code address under another value may be
/// about other code. Async-signal-safe, a load.
inline std::uint64_t unload_epoch() {
    return unload_state::epoch.load(std::memory_order_acquire);
}

/// True while a dlclose is running on any thread: what is learned now may be about code that is
/// gone in a moment. Async-signal-safe, a load.
inline bool is_unloading() {
    return unload_state::running.load(std::memory_order_acquire) != 0;
}

/// Around the real dlclose.
class Unloading {
  public:
    Unloading();
    ~Unloading();
    Unloading(const Unloading&) = delete;
    Unloading& operator=(const Unloading&) = delete;
};

/// Something was unloaded that no dlclose of ours saw. Async-signal-safe.
void unload_was_missed();

/// What a cache by code address keeps to notice that it has to forget. Thread-safe.
class UnloadFollower {
  public:
    bool is_behind() const { return seen_.load(std::memory_order_acquire) != unload_epoch(); }

    /// Runs `forget`, which empties the cache, and is up to date then. Several threads may do so at
    /// once.
    template <class Forget>
    void catch_up(const Forget& forget) {
        const std::uint64_t now = unload_epoch();
        forget();
        seen_.store(now, std::memory_order_release);
    }

  private:
    std::atomic<std::uint64_t> seen_{1};
};

/// In a forked child: other threads' dlclose calls are not there to end.
void forget_unloads_after_fork();

}  // namespace memlab::profiler::unwind
