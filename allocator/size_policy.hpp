// Which sizes the pool works with: pure arithmetic on PoolOptions, so that the rules taken over
// from PyTorch can be read, and tested, in one place.
//
// One rule is ours. RDMA and IPC want large buffers on 64 KiB boundaries, so a block of at least
// `coarse_alignment` bytes begins at such a multiple of its segment's base (which every driver
// aligns to 2 MiB). Sizes are not rounded for it: a 4,000,000-byte tensor is 4,000,256 bytes
// allocated, as PyTorch says. Instead the gap in front of an aligned block stays a free block of
// its own. Smaller requests fill gaps in small segments; in large ones a gap joins its neighbour
// when that is freed, and is cut off again when it is reused.
#pragma once

#include <cstdint>
#include <optional>

#include "allocator/pool_options.hpp"

namespace memlab::allocator {

class SizePolicy {
  public:
    explicit SizePolicy(const PoolOptions& options) : options_(options) {}

    /// How a request is served.
    struct Plan {
        std::uint64_t size = 0;     ///< the block's, rounded
        std::uint64_t segment = 0;  ///< what to get from the backend if no free block fits
        bool small = false;         ///< from small segments
    };

    /// The plan for `requested` bytes (0 is served like 1); none when rounding overflows.
    std::optional<Plan> plan(std::uint64_t requested) const;

    /// What to get from the backend for `plan`, by a pool whose segments for such blocks have
    /// `reserved` bytes, `unused` of them free. Sizes that vary leave segments behind that the next
    /// size does not fit into. The sign is that an eighth of all is free, and enough of it for this
    /// block, but in pieces: then large segments get fewer different sizes. No block grows, and
    /// what it leaves of its segment serves others. A program that fills its memory densely, or
    /// loads a model, never meets this rule.
    std::uint64_t segment_for(const Plan& plan, std::uint64_t reserved, std::uint64_t unused) const;

    /// Where a block of `size` may begin: multiples of this, counted from its segment's base.
    std::uint64_t alignment_of(std::uint64_t size) const {
        return size >= options_.coarse_alignment ? options_.coarse_alignment : options_.rounding;
    }

    /// Whether a request of `size` may have a free block of `block` bytes: PyTorch keeps blocks of
    /// max_split_size for requests that need most of one.
    bool may_use(std::uint64_t size, std::uint64_t block) const;

    /// How many of a free block's bytes a coarsely aligned request can use.
    std::uint64_t aligned_capacity(std::uint64_t offset, std::uint64_t size) const;

    /// Whether `tail` unused bytes behind a new block become a block of their own. At the end of
    /// the segment the rule is PyTorch's; before a neighbour, what is too small to be anything but
    /// an alignment gap is cut off too, else it would count as allocated.
    bool cuts_tail(std::uint64_t size, std::uint64_t tail, bool small,
                   bool reaches_segment_end) const;

    /// How many addresses an expandable range gets that must hold a block of `size`; whole pages.
    /// `total_memory` is what the backend says.
    std::uint64_t range_bytes(std::uint64_t size, std::uint64_t total_memory) const;

    /// Whether a block or segment counts as PyTorch's oversize.
    bool oversize(std::uint64_t size) const { return size >= options_.max_split_size; }

    const PoolOptions& options() const { return options_; }

  private:
    std::optional<std::uint64_t> rounded(std::uint64_t requested) const;

    PoolOptions options_;
};

}  // namespace memlab::allocator
