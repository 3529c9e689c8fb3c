// The pool's policy, as values. The option table (interpose/options) parses them from text.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace memlab::allocator {

/// What cudaFree promises about the host; see Pool::free.
enum class FreeSync : std::uint8_t {
    automatic,  ///< wait for the device, but only when it is busy: the host sees finished results
    always,     ///< wait always
    never,      ///< never stop the host; reuse is still ordered behind the fence
};

/// PyTorch's roundup_power2_divisions: [i] is for requests from 2^i MiB to below 2^(i+1) MiB, the
/// first for all smaller ones too and the last for all larger. The range between two powers of two
/// is divided into so many steps, and a request rounded up to the next one; 0 and 1: no such
/// rounding.
using RoundupDivisions = std::array<std::uint32_t, 16>;

/// Reads PyTorch's notation, "8" for all sizes or "[256:1,512:2,1024:4,>:8]" (MiB:divisions; the
/// first pair is for all smaller sizes too, ">" for all larger than the last). Empty when it is
/// well formed, else one sentence saying what is not; *divisions is then unchanged.
std::string read_roundup_divisions(std::string_view text, RoundupDivisions* divisions);

/// Sizes in bytes. The defaults are PyTorch's, but for two options that PyTorch does not have: with
/// coarse_alignment set to `rounding` and fragmented_rounding to 0 they are off and the layout is
/// PyTorch's to the byte.
struct PoolOptions {
    FreeSync free_sync = FreeSync::automatic;
    std::uint64_t rounding = 512;                ///< block sizes are multiples of it
    std::uint64_t coarse_alignment = 64 << 10;   ///< blocks this large begin at a multiple of it
    std::uint64_t small_size = 1ULL << 20;       ///< up to here: from small segments
    std::uint64_t small_segment = 2ULL << 20;    ///< size of a small segment
    std::uint64_t medium_size = 10ULL << 20;     ///< below: from medium segments
    std::uint64_t medium_segment = 20ULL << 20;  ///< its size; PyTorch's large_segment_size
    std::uint64_t large_rounding = 2ULL << 20;   ///< larger segments are multiples of it

    /// While much of what large segments have is free in pieces that are too small, a large segment
    /// is a multiple of half the power of two below it, but of no more than this; 0: never. See
    /// SizePolicy::segment_for.
    std::uint64_t fragmented_rounding = 16ULL << 20;

    RoundupDivisions roundup_power2_divisions{};

    /// A free block of at least this size serves only requests of at least this size, and is not
    /// cut for them; no_limit: all blocks are cut.
    std::uint64_t max_split_size = no_limit;
    static constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();
    /// What a request of at least max_split_size may leave unused of its block: less than this.
    std::uint64_t max_non_split_rounding = 20ULL << 20;

    /// Above this share of all memory, unused large segments are given back before the pool grows,
    /// those first that have been unused for the most allocations; 0: never.
    double garbage_collection_threshold = 0;
    /// What "all memory" is; 0: what the backend says (and never, when it does not know).
    std::uint64_t total_memory = 0;

    /// PyTorch's expandable_segments: memory is mapped page by page into ranges of addresses, one
    /// for small and one for large blocks, where the backend can do that; else segments are got as
    /// without.
    bool expandable = false;
    /// The addresses of one such range; 0: twice all memory, or 256 GiB where that is unknown.
    std::uint64_t expandable_range = 0;

    /// Pool::tick() gives back what has been unused for so many nanoseconds; 0: nothing.
    std::uint64_t trim_after_ns = 0;

    bool operator==(const PoolOptions&) const = default;
};

/// Empty when a Pool can work with `options`, else one sentence saying which value is wrong and
/// what it must be. Whoever takes options from a user calls it before making a Pool.
std::string problem_with(const PoolOptions& options);

}  // namespace memlab::allocator
