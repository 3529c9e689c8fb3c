// The size arithmetic of the pool: PyTorch's rules, as pure functions of PoolOptions.
//
// One rule is memlab's own. RDMA and IPC want large buffers on 64 KiB boundaries, so a block of at
// least `coarse_alignment` bytes begins at such a multiple of its segment's base (which every
// driver aligns to 2 MiB). Sizes are not rounded up for it: a 4,000,000-byte tensor is 4,000,256
// bytes allocated, as in PyTorch. Instead the gap before an aligned block stays a free block.
// Smaller requests fill the gaps in small segments; in large ones a gap is coalesced with its
// neighbour when that is freed, and split off again when it is reused.
#pragma once

#include <cstdint>
#include <optional>

#include "allocator/pool_options.hpp"

namespace memlab::allocator {

/// Thread-safety: immutable.
class SizePolicy {
  public:
    explicit SizePolicy(const PoolOptions& options) : options_(options) {}

    /// How a request is served.
    struct Plan {
        std::uint64_t size = 0;     ///< the block's, rounded
        std::uint64_t segment = 0;  ///< the size of a new segment, if no free block fits
        std::uint64_t unshared =
            0;               ///< the block's where it shares nothing: of a page or more, in pages
        bool small = false;  ///< from small segments
    };

    /// The plan for `requested` bytes (0 counts as 1); none when rounding overflows.
    std::optional<Plan> plan(std::uint64_t requested) const;

    /// The size of a new segment for `plan`, in a pool whose segments for such blocks have
    /// `reserved` bytes, `unused` of them free. Varying sizes leave segments that the next size
    /// does not fit. When an eighth of the reserved memory is free, and enough for this block, but
    /// fragmented, large segments are rounded more coarsely, so that later sizes can reuse them. No
    /// block grows; the rest of its segment serves others. A program that fills its memory densely,
    /// or loads a model, never triggers this.
    std::uint64_t segment_for(const Plan& plan, std::uint64_t reserved, std::uint64_t unused) const;

    /// The alignment of a block of `size`, relative to its segment's base.
    std::uint64_t alignment_of(std::uint64_t size) const {
        return size >= options_.coarse_alignment ? options_.coarse_alignment : options_.rounding;
    }

    /// Whether a request of `size` may use a free block of `block` bytes: as in PyTorch, blocks of
    /// max_split_size or more are reserved for requests that need most of one.
    bool may_use(std::uint64_t size, std::uint64_t block) const;

    /// How many of a free block's bytes a coarsely aligned request can use.
    std::uint64_t aligned_capacity(std::uint64_t offset, std::uint64_t size) const;

    /// Whether `tail` unused bytes after a new block become a block of their own. At the end of the
    /// segment the rule is PyTorch's. Before a neighbour, a tail that can only be an alignment gap
    /// is split off too, else it would count as allocated.
    bool splits_tail(std::uint64_t size, std::uint64_t tail, bool small,
                     bool reaches_segment_end) const;

    /// The size of a new expandable range that must hold a block of `size`; a multiple of a page.
    /// `total_memory` is DeviceBackend::total_memory().
    std::uint64_t range_bytes(std::uint64_t size, std::uint64_t total_memory) const;

    /// Whether a block or segment counts as PyTorch's oversize.
    bool oversize(std::uint64_t size) const { return size >= options_.max_split_size; }

    const PoolOptions& options() const { return options_; }

  private:
    std::optional<std::uint64_t> rounded(std::uint64_t requested) const;

    PoolOptions options_;
};

}  // namespace memlab::allocator
