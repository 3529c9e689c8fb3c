// What the pool knows of each range: kept small, since a program can hold a million of them. A
// block is in use or free, never both, so the fields of the one share their place with those of the
// other.
#pragma once

#include <cstdint>

#include "allocator/backend.hpp"

namespace memlab::allocator {

struct Block;

/// What no clock shows.
inline constexpr std::uint64_t never_seen = ~std::uint64_t{0};

struct Segment {
    Address base = 0;
    std::uint64_t size = 0;
    Block* first = nullptr;  ///< the block at its base
    bool small = false;
    bool expandable = false;
    std::uint32_t blocks = 0;                  ///< 1: whole, not split
    std::uint64_t mapped = 0;                  ///< bytes that have memory: all, if not expandable
    std::uint64_t idle_since_ns = never_seen;  ///< the first tick that saw it whole and free
    std::uint64_t unused_since = 0;  ///< when it became whole and free, counted in takes()
};

enum class BlockState : std::uint8_t {
    free,
    live,      ///< the application holds it
    deferred,  ///< given back; its fence may not be recorded yet
    pending,   ///< given back; behind its fence
    lost,      ///< given back, but its fence failed: never used again
    unmapped,  ///< addresses of an expandable range that have no memory
};

/// Children in an OrderedBlocks.
struct TreeLinks {
    Block* below;
    Block* above;
};

/// What a walk through a tree looks at comes first, to be in one cache line.
struct Block {
    Address address;
    std::uint64_t size;

    /// The store's, while the block is free or unmapped.
    struct Idle {
        TreeLinks size_links;
        TreeLinks capacity_links;
        std::uint64_t capacity;  ///< in the order by capacity: what it is ordered by
        std::uint64_t since_ns;  ///< the first tick that saw most of it free
    };
    /// The pool's, while it is neither.
    struct Use {
        std::uint64_t requested;
        std::uint64_t id;
        Fence fence;          ///< pending; else 0
        std::uint64_t order;  ///< pending: of its fence among all; rises along the list
        Block* list_previous;
        Block* list_next;
    };
    union {
        Idle idle;
        Use use;
    };

    Segment* segment;
    Block* previous;   ///< the neighbour below in the same segment
    Block* next;       ///< the neighbour above
    Block* same_hash;  ///< the next in BlockIndex's bucket
    BlockState state;
    bool waited_for;       ///< pending: a thread is in fence_wait_host for it and will settle it
    bool by_size;          ///< free, unmapped: in the order by size
    bool by_capacity;      ///< free: in the order by capacity
    std::uint32_t behind;  ///< pending: which of the pool's lists it is in; 0: that of all work
};

// 24 bytes are left for the indexes that find a block by its address.
static_assert(sizeof(Block) <= 104);

}  // namespace memlab::allocator
