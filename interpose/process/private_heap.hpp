// The heap of libmemlab.so: memory for its operator new that is mapped, never the program's malloc.
//
// memlab allocates under its own locks, which the program's CUDA calls take as well. A malloc of
// the program's (a heap profiler's, a wrapper's) may call CUDA while it holds a lock: were it
// called under ours, the two locks would be taken in both orders, and both threads wait forever.
//
// Size classes over mapped chunks. Each class has a lock-free stack of free blocks (Treiber's; the
// tag beside its top, swapped with it by cmpxchg16b, excludes ABA) and a chunk of which new blocks
// are cut by an atomic addition, so that untouched pages cost nothing. Without a lock there is no
// order of locks to keep, and the heap is consistent at every instruction: in a forked child,
// whatever the parent's other threads were doing, and after a thread has ended or jumped out of it.
// Blocks of classes are kept for reuse for the life of the process; the memory of larger ones is
// mapped for each and unmapped by its release.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace memlab::interpose {

/// Thread-safety: any number of threads. Async-signal-safe. Needs no destruction.
class PrivateHeap {
  public:
    /// What allocate() aligns to if not asked for more.
    static constexpr std::size_t alignment = 16;
    /// The largest block that a class serves.
    static constexpr std::size_t max_class_bytes = (std::size_t{32} << 10) - 8;

    constexpr PrivateHeap() = default;
    PrivateHeap(const PrivateHeap&) = delete;
    PrivateHeap& operator=(const PrivateHeap&) = delete;

    /// Null if the system is out of memory. `align` is a power of two.
    void* allocate(std::size_t size, std::size_t align = alignment) noexcept;
    /// Takes what allocate() of this heap returned, or null.
    void release(void* memory) noexcept;

    /// Calls visit(block, usable bytes, whether it is free) for each block of the classes that was
    /// ever handed out. False if a list has what is no block of its class, or one twice. For tests;
    /// no other thread may use the heap meanwhile.
    template <class Visit>
    bool walk(const Visit& visit) const {
        return walk(
            [](void* context, void* block, std::size_t usable, bool is_free) {
                (*static_cast<const Visit*>(context))(block, usable, is_free);
            },
            const_cast<void*>(static_cast<const void*>(&visit)));
    }

  private:
    static constexpr std::size_t class_count = 39;

    struct Chunk;
    struct alignas(16) Top {  // read and written as a whole by cmpxchg16b
        std::uint64_t block = 0;
        std::uint64_t tag = 0;
    };
    struct alignas(64) SizeClass {
        Top top;
        std::atomic<Chunk*> chunk{nullptr};
    };

    using Visitor = void(void* context, void* block, std::size_t usable, bool is_free);
    bool walk(Visitor* visit, void* context) const;

    static std::size_t class_of(std::size_t need);
    static std::size_t stride_of(std::size_t index);
    static void* pop(Top* top);
    static void push(Top* top, void* block);
    static void* cut(SizeClass* of, std::size_t index);
    static void* map_large(std::size_t size);
    void* allocate_unaligned(std::size_t size);

    std::array<SizeClass, class_count> classes_{};
};

}  // namespace memlab::interpose
