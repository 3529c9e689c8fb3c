// The pool's metadata: segments, and the blocks they are divided into. Kept small, since a program
// can hold a million blocks: the fields of a free block and of one in use share a union.
#pragma once

#include <cstdint>

#include "allocator/backend.hpp"
#include "allocator/page_set.hpp"

namespace memlab::allocator {

struct Block;

/// Children in an OrderedBlocks; in an order by age the older (left) and the newer one.
template <typename Node>
struct Links {
    Node* left;
    Node* right;
};
using TreeLinks = Links<Block>;

/// What a segment is for: PyTorch's small and large pool; and of each a part without sharing, in
/// expandable ranges, for what exceeds PoolOptions::packed_share. There a block of a page or more
/// has its chunks to itself, and a smaller one lies within one page, so that what is free can go
/// back just where plain CUDA has it back.
enum class Area : std::uint8_t { large, small, own_chunks, own_page };
inline constexpr Area all_areas[] = {Area::large, Area::small, Area::own_chunks, Area::own_page};
constexpr bool is_small(Area area) {
    return area == Area::small || area == Area::own_page;
}
constexpr bool is_packed(Area area) {
    return area == Area::large || area == Area::small;
}
constexpr Area packed_area(bool small) {
    return small ? Area::small : Area::large;
}
/// For a block of `size`.
constexpr Area unshared_area(std::uint64_t size) {
    return size < page_bytes ? Area::own_page : Area::own_chunks;
}

/// A time that tick() never passes: "not seen idle yet".
inline constexpr std::uint64_t never_seen = ~std::uint64_t{0};

struct Segment {
    Address base = 0;
    std::uint64_t size = 0;
    Block* first = nullptr;  ///< the block at its base
    Area area = Area::large;
    bool expandable = false;
    std::uint32_t blocks = 0;                  ///< 1: whole, not split
    std::uint64_t mapped = 0;                  ///< bytes backed by memory: all, if not expandable
    std::uint64_t idle_since_ns = never_seen;  ///< the first tick that saw it wholly free
    std::uint64_t unused_since = 0;            ///< takes() when it became wholly free
    Links<Segment> unused_links{};  ///< wholly free: in BlockStore's order of those by age
    PageSet chunks;                 ///< of a packed range: the pages at which chunks begin

    bool small() const { return is_small(area); }
};

enum class BlockState : std::uint8_t {
    free,
    live,         ///< the application holds it
    deferred,     ///< freed; its fence may not be recorded yet
    pending,      ///< freed; waits for its fence
    quarantined,  ///< freed, but its fence failed: never reused
    unmapped,     ///< addresses of an expandable range without memory
};

/// The fields that a tree search reads come first, to share a cache line.
struct Block {
    Address address;
    std::uint64_t size;

    /// BlockStore's, while the block is free or unmapped.
    struct Idle {
        TreeLinks size_links;
        union {
            TreeLinks capacity_links;
            TreeLinks age_links;  ///< without sharing
        };
        std::uint64_t capacity;  ///< the key in the order by capacity
        std::uint64_t since_ns;  ///< the first tick that saw most of it free
    };
    /// Pool's, in all other states.
    struct Use {
        std::uint64_t requested;
        std::uint64_t id;
        Fence fence;          ///< pending; else 0
        std::uint64_t order;  ///< sequence number of the fence, or of the deferred free
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
    bool waited_for;   ///< pending: a thread is in fence_wait_host for it and will retire it
    bool by_size;      ///< free, unmapped: in the order by size
    bool by_capacity;  ///< free: in the order by capacity
    union {
        std::uint32_t list;         ///< pending: which of the pool's lists; 0: that of all work
        std::uint32_t whole_pages;  ///< free: pages of its whole chunks, in packed ranges
    };
};

// The budget per block leaves 24 bytes for the indexes by address.
static_assert(sizeof(Block) <= 104);

}  // namespace memlab::allocator
