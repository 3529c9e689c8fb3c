#include "interpose/process/private_heap.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <new>

namespace memlab::interpose {
namespace {

// A block is preceded by a word that says how release() finds what it belongs to.
enum class Origin : std::uint64_t {
    size_class = 0,  // the class's number
    large = 1,       // the bytes of its mapping
    shifted = 2,     // its distance from the block that it was cut of, for its alignment
};
constexpr unsigned origin_bits = 2;
constexpr std::size_t word = sizeof(std::uint64_t);

constexpr std::size_t page = 4096;
constexpr std::size_t min_chunk = std::size_t{16} << 10;
constexpr std::size_t max_chunk = std::size_t{1} << 20;
constexpr std::size_t blocks_of_chunk = 8;  // at least

// Strides: every 16 bytes up to 128, then four for each doubling.
constexpr std::size_t linear_end = 128;
constexpr std::size_t linear_first = 32;
constexpr std::size_t linear_count = (linear_end - linear_first) / PrivateHeap::alignment + 1;

std::uint64_t& word_before(void* block) {
    return static_cast<std::uint64_t*>(block)[-1];
}

void set_origin(void* block, Origin origin, std::uint64_t value) {
    word_before(block) = value << origin_bits | static_cast<std::uint64_t>(origin);
}

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
    return (value + unit - 1) & ~(unit - 1);
}

void* map(std::size_t bytes) {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

/// The link of a block that another thread may have taken meanwhile, and written to: then it is
/// anything, and the tag has changed. So ThreadSanitizer must not look.
[[gnu::noinline, gnu::no_sanitize("thread")]] std::uint64_t link_of(std::uint64_t block) {
    return *reinterpret_cast<const volatile std::uint64_t*>(block);
}

// Of GNU's builtins only this one is inlined for 16 bytes; std::atomic calls libatomic.
__extension__ using TwoWords [[gnu::may_alias]] = unsigned __int128;

TwoWords two_words(std::uint64_t low, std::uint64_t high) {
    constexpr unsigned bits = 64;
    return static_cast<TwoWords>(high) << bits | low;
}

}  // namespace

/// At the start of a chunk. The first block's word before it comes right behind.
struct PrivateHeap::Chunk {
    Chunk* earlier;
    std::size_t number;  ///< of chunks of this class before it
    std::size_t end;     ///< bytes of blocks that fit
    std::atomic<std::size_t> used;

    static constexpr std::size_t header = 64;
    void* block_at(std::size_t offset) { return reinterpret_cast<char*>(this) + header + offset; }
};

std::size_t PrivateHeap::stride_of(std::size_t index) {
    if (index < linear_count) {
        return linear_first + index * alignment;
    }
    const std::size_t step = index - linear_count;
    const std::size_t doubling = linear_end << (step / 4);
    return doubling + doubling / 4 * (step % 4 + 1);
}

/// The smallest class whose stride is not below `need`.
[[gnu::hot]] std::size_t PrivateHeap::class_of(std::size_t need) {
    if (need <= linear_end) {
        return need <= linear_first ? 0 : (need - linear_first + alignment - 1) / alignment;
    }
    const auto log = static_cast<unsigned>(std::bit_width(need - 1)) - 1;  // 2^log < need
    constexpr unsigned linear_log = std::bit_width(linear_end) - 1;
    const std::size_t quarter = ((need - 1) >> (log - 2)) & 3;
    return linear_count + (log - linear_log) * 4 + quarter;
}

[[gnu::hot]] void* PrivateHeap::pop(Top* top) {
    for (;;) {
        // Not one read: what does not belong together is refused by the exchange.
        const std::uint64_t tag = __atomic_load_n(&top->tag, __ATOMIC_ACQUIRE);
        const std::uint64_t block = __atomic_load_n(&top->block, __ATOMIC_ACQUIRE);
        if (block == 0) {
            return nullptr;
        }
        if (__sync_bool_compare_and_swap(reinterpret_cast<TwoWords*>(top), two_words(block, tag),
                                         two_words(link_of(block), tag + 1))) {
            return reinterpret_cast<void*>(block);
        }
    }
}

[[gnu::hot]] void PrivateHeap::push(Top* top, void* block) {
    for (;;) {
        const std::uint64_t tag = __atomic_load_n(&top->tag, __ATOMIC_ACQUIRE);
        const std::uint64_t below = __atomic_load_n(&top->block, __ATOMIC_ACQUIRE);
        *static_cast<std::uint64_t*>(block) = below;
        if (__sync_bool_compare_and_swap(
                reinterpret_cast<TwoWords*>(top), two_words(below, tag),
                two_words(reinterpret_cast<std::uint64_t>(block), tag + 1))) {
            return;
        }
    }
}

void* PrivateHeap::cut(SizeClass* of, std::size_t index) {
    const std::size_t stride = stride_of(index);
    Chunk* chunk = of->chunk.load(std::memory_order_acquire);
    for (;;) {
        if (chunk != nullptr && chunk->used.load(std::memory_order_relaxed) < chunk->end) {
            const std::size_t at = chunk->used.fetch_add(stride, std::memory_order_relaxed);
            if (at < chunk->end) {
                void* const block = chunk->block_at(at);
                set_origin(block, Origin::size_class, index);
                return block;
            }
        }
        const std::size_t number = chunk == nullptr ? 0 : chunk->number + 1;
        constexpr std::size_t max_doublings = 6;
        const std::size_t grown = std::min(max_chunk, min_chunk << std::min(number, max_doublings));
        const std::size_t bytes =
            round_up(std::max(grown, Chunk::header + blocks_of_chunk * stride), page);
        void* const memory = map(bytes);
        if (memory == nullptr) {
            return nullptr;
        }
        auto* const made = new (memory) Chunk{chunk, number, 0, {}};
        made->end = (bytes - Chunk::header) / stride * stride;
        if (of->chunk.compare_exchange_strong(chunk, made, std::memory_order_acq_rel,
                                              std::memory_order_acquire)) {
            chunk = made;
        } else {
            munmap(memory, bytes);  // another thread was first: `chunk` is now that thread's
        }
    }
}

void* PrivateHeap::map_large(std::size_t size) {
    if (size > std::numeric_limits<std::size_t>::max() / 8) {
        return nullptr;
    }
    const std::size_t bytes = round_up(size + alignment, page);
    void* const memory = map(bytes);
    if (memory == nullptr) {
        return nullptr;
    }
    void* const block = static_cast<char*>(memory) + alignment;
    set_origin(block, Origin::large, bytes);
    return block;
}

[[gnu::hot]] void* PrivateHeap::allocate_unaligned(std::size_t size) {
    if (size > max_class_bytes) {
        return map_large(size);
    }
    const std::size_t index = class_of(size + word);
    SizeClass& of = classes_[index];
    void* const block = pop(&of.top);
    return block != nullptr ? block : cut(&of, index);
}

[[gnu::hot]] void* PrivateHeap::allocate(std::size_t size, std::size_t align) noexcept {
    if (align <= alignment) {
        return allocate_unaligned(size);
    }
    if (size > std::numeric_limits<std::size_t>::max() - align) {
        return nullptr;
    }
    void* const block = allocate_unaligned(size + align);
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    const std::size_t shift = round_up(address, align) - address;
    if (block == nullptr || shift == 0) {
        return block;
    }
    void* const aligned = static_cast<char*>(block) + shift;
    set_origin(aligned, Origin::shifted, shift);
    return aligned;
}

[[gnu::hot]] void PrivateHeap::release(void* memory) noexcept {
    if (memory == nullptr) {
        return;
    }
    std::uint64_t origin = word_before(memory);
    constexpr std::uint64_t mask = (1U << origin_bits) - 1;
    if ((origin & mask) == static_cast<std::uint64_t>(Origin::shifted)) {
        memory = static_cast<char*>(memory) - (origin >> origin_bits);
        origin = word_before(memory);
    }
    const std::uint64_t value = origin >> origin_bits;
    if ((origin & mask) == static_cast<std::uint64_t>(Origin::large)) {
        munmap(static_cast<char*>(memory) - alignment, value);
    } else {
        push(&classes_[value].top, memory);
    }
}

bool PrivateHeap::walk(Visitor* visit, void* context) const {
    constexpr std::uint64_t in_list = std::uint64_t{1} << 63;
    bool good = true;
    for (std::size_t index = 0; index < class_count; ++index) {
        const std::size_t stride = stride_of(index);
        const std::uint64_t plain = index << origin_bits;
        // Marks what is free by a bit of the word before it, and takes the mark away again.
        for (std::uint64_t block = classes_[index].top.block; block != 0; block = link_of(block)) {
            std::uint64_t& before = word_before(reinterpret_cast<void*>(block));
            if (before != plain) {
                return false;
            }
            before |= in_list;
        }
        Chunk* chunk = classes_[index].chunk.load(std::memory_order_acquire);
        for (; chunk != nullptr; chunk = chunk->earlier) {
            const std::size_t used = std::min(chunk->end, chunk->used.load());
            for (std::size_t at = 0; at < used; at += stride) {
                void* const block = chunk->block_at(at);
                const bool is_free = (word_before(block) & in_list) != 0;
                word_before(block) &= ~in_list;
                good = good && word_before(block) == plain;
                visit(context, block, stride - word, is_free);
            }
        }
    }
    return good;
}

}  // namespace memlab::interpose
