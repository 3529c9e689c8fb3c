// Lock-free cache: the class of the loaded object that contains a return address. Looking up the
// object's path costs far more than the stack walk that found the address. Cleared when an object
// is unloaded.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "profiler/loaded_modules.hpp"
#include "profiler/unwind/unloads.hpp"

namespace memlab::profiler {

/// `Classify` maps the object's path (empty: no object) to a class from 1 to 127. Thread-safety:
/// all functions, from any thread; lock-free. Throws std::bad_alloc.
class ObjectClasses {
  public:
    template <class Classify>
    std::uint8_t find_or_classify(std::uintptr_t address, const Classify& classify) {
        if (follower_.is_stale()) {
            forget();
        }
        if (const std::uint8_t cached = known(address); cached != 0) {
            return cached;
        }
        LoadedModule module;
        find_loaded_module(address, &module);
        const std::uint8_t kind = classify(std::string_view(module.path));
        slot(address).store(std::uint64_t{address} << class_bits | kind, std::memory_order_relaxed);
        return kind;
    }

    /// The cached class, or 0.
    std::uint8_t known(std::uintptr_t address) {
        const std::uint64_t entry = slot(address).load(std::memory_order_relaxed);
        return entry >> class_bits == address && !follower_.is_stale()
                   ? static_cast<std::uint8_t>(entry & max_class)
                   : 0;
    }

  private:
    // User-space addresses leave these bits free, also with five levels of page tables.
    static constexpr unsigned class_bits = 7;
    static constexpr std::uint64_t max_class = (1U << class_bits) - 1;

    std::atomic<std::uint64_t>& slot(std::uintptr_t address) {
        return entries_[(address >> 2) % entries_.size()];
    }

    void forget() {
        follower_.refresh([this] {
            for (std::atomic<std::uint64_t>& entry : entries_) {
                entry.store(0, std::memory_order_relaxed);
            }
        });
    }

    unwind::EpochTracker follower_;
    std::array<std::atomic<std::uint64_t>, 1024> entries_{};
};

}  // namespace memlab::profiler
