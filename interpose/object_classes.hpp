// What kind of loaded object a return address lies in, remembered per address: a look at the
// object's path costs far more than the stack walk that found the address. Forgotten when an object
// is unloaded.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "profiler/loaded_modules.hpp"
#include "profiler/unwind/unloads.hpp"

namespace memlab::interpose {

/// `Classify` gives the object's path (empty: no object) to a class from 1 to 3.
/// Thread-safety: all functions, from any thread; takes no lock. Throws std::bad_alloc.
class ObjectClasses {
  public:
    template <class Classify>
    std::uint8_t of(std::uintptr_t address, const Classify& classify) {
        if (follower_.is_behind()) {
            forget();
        }
        std::atomic<std::uint64_t>& cached = entries_[(address >> 2) % entries_.size()];
        const std::uint64_t entry = cached.load(std::memory_order_relaxed);
        if (entry >> 2 == address && entry != 0) {
            return static_cast<std::uint8_t>(entry & 3);
        }
        profiler::LoadedModule module;
        profiler::find_loaded_module(address, &module);
        const std::uint8_t kind = classify(std::string_view(module.path));
        // User-space addresses leave room for two bits.
        cached.store(std::uint64_t{address} << 2 | kind, std::memory_order_relaxed);
        return kind;
    }

  private:
    void forget() {
        follower_.catch_up([this] {
            for (std::atomic<std::uint64_t>& entry : entries_) {
                entry.store(0, std::memory_order_relaxed);
            }
        });
    }

    profiler::unwind::UnloadFollower follower_;
    std::array<std::atomic<std::uint64_t>, 1024> entries_{};
};

}  // namespace memlab::interpose
