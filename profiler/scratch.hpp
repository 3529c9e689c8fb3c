// Memory for one call's work that is too large for the stacks that programs give their threads.
//
// A few places that are there all along; one that nobody has used costs no memory. A thread takes
// the one that its address leads to, which its processor's caches know, or the next that is free.
// So a signal handler that comes here while the thread that it interrupted has a place gets another
// one. Where all are taken the system is asked for memory, for this call alone. No lock, no heap,
// nothing to give back when a thread ends.
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
template <class Room, std::size_t places = 16>
class Scratch {
  public:
    Scratch() {
        const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
        const std::size_t first = (thread * 0x9e3779b97f4a7c15U) >> 32;
        for (std::size_t i = 0; i < places && place_ == nullptr; ++i) {
            Place& place = all[(first + i) % places];
            if (!place.taken.exchange(true, std::memory_order_acquire)) {
                place_ = &place;
            }
        }
        void* memory = place_ != nullptr ? place_->bytes.data() : map();
        room_ = memory != nullptr ? new (memory) Room : nullptr;
    }
    ~Scratch() {
        if (place_ != nullptr) {
            place_->taken.store(false, std::memory_order_release);
        } else if (room_ != nullptr) {
            munmap(room_, sizeof(Room));
        }
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    /// Null when the system has no memory.
    Room* get() const { return room_; }

  private:
    static_assert(std::is_trivially_destructible_v<Room>);

    struct alignas(64) Place {
        std::atomic<bool> taken;
        alignas(Room) std::array<unsigned char, sizeof(Room)> bytes;
    };
    static constinit inline std::array<Place, places> all{};

    static void* map() {
        void* const memory =
            mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED ? nullptr : memory;
    }

    Place* place_ = nullptr;
    Room* room_ = nullptr;
};

}  // namespace memlab::profiler
