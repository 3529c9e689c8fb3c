// Scoped working memory for data too large for small thread stacks.
//
// A static array of slots, whose untouched pages cost no memory. A thread takes the slot that its
// address hashes to, which is warm in its caches, or the next free one; a signal handler that
// interrupted a user of a slot gets another one. If all are in use, memory is mapped for the scope.
// No lock, no heap, no per-thread cleanup.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

namespace memlab::profiler {

/// Thread-safety: any number of threads. Async-signal-safe.
template <class Value, std::size_t slot_count = 16>
class Scratch {
  public:
    Scratch() {
        const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
        const std::size_t first = (thread * 0x9e3779b97f4a7c15U) >> 32;
        for (std::size_t i = 0; i < slot_count && slot_ == nullptr; ++i) {
            Slot& slot = slots[(first + i) % slot_count];
            if (!slot.in_use.exchange(true, std::memory_order_acquire)) {
                slot_ = &slot;
            }
        }
        void* memory = slot_ != nullptr ? slot_->bytes.data() : map();
        value_ = memory != nullptr ? new (memory) Value : nullptr;
    }
    ~Scratch() {
        if (slot_ != nullptr) {
            slot_->in_use.store(false, std::memory_order_release);
        } else if (value_ != nullptr) {
            munmap(value_, sizeof(Value));
        }
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    /// Default-initialized; null if the system is out of memory.
    Value* get() const { return value_; }

  private:
    static_assert(std::is_trivially_destructible_v<Value>);

    struct alignas(64) Slot {
        std::atomic<bool> in_use;
        alignas(Value) std::array<unsigned char, sizeof(Value)> bytes;
    };
    static constinit inline std::array<Slot, slot_count> slots{};

    static void* map() {
        void* const memory = mmap(nullptr, sizeof(Value), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED ? nullptr : memory;
    }

    Slot* slot_ = nullptr;
    Value* value_ = nullptr;
};

}  // namespace memlab::profiler
