// The pool's options. The option table (interpose/options) parses them from text.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace memlab::allocator {

/// Whether a free synchronizes the host with the device; see Pool::free.
enum class FreeSync : std::uint8_t {
    automatic,  ///< wait if the device is busy and the caller may rely on it, as with cudaFree
    always,     ///< always wait
    never,      ///< never block the host; reuse is still ordered behind the fence
};

/// PyTorch's roundup_power2_divisions: [i] is for requests of 2^i MiB up to 2^(i+1) MiB, the first
/// also for all smaller ones and the last for all larger. It divides the range between two powers
/// of two into that many steps; a request is rounded up to the next step. 0 and 1: no rounding.
using RoundupDivisions = std::array<std::uint32_t, 16>;

/// Parses PyTorch's notation: "8" for all sizes, or "[256:1,512:2,1024:4,>:8]" (MiB:divisions; the
/// first pair also covers all smaller sizes, ">" all larger than the last). Returns an empty string
/// on success, else one sentence saying what is malformed; *divisions is then unchanged.
std::string parse_roundup_divisions(std::string_view text, RoundupDivisions* divisions);

/// Sizes in bytes. The defaults are PyTorch's, except for two options that PyTorch does not have:
/// coarse_alignment and fragmented_rounding. Set to `rounding` and 0 they are off, and the layout
/// is PyTorch's to the byte.
struct PoolOptions {
    FreeSync free_sync = FreeSync::automatic;
    std::uint64_t rounding = 512;                ///< block sizes are multiples of it
    std::uint64_t coarse_alignment = 64 << 10;   ///< blocks this large begin at a multiple of it
    std::uint64_t small_size = 1ULL << 20;       ///< up to here: from small segments
    std::uint64_t small_segment = 2ULL << 20;    ///< size of a small segment
    std::uint64_t medium_size = 10ULL << 20;     ///< below: from medium segments
    std::uint64_t medium_segment = 20ULL << 20;  ///< its size; PyTorch's large_segment_size
    std::uint64_t large_rounding = 2ULL << 20;   ///< larger segments are multiples of it

    /// While the large segments are fragmented, the size of a new one is rounded up to half the
    /// power of two below it, or to this if that is less; 0: never. See SizePolicy::segment_for.
    std::uint64_t fragmented_rounding = 16ULL << 20;

    RoundupDivisions roundup_power2_divisions{};

    /// A free block of at least this size serves only requests of at least this size, and is not
    /// split for them; no_limit: all blocks may be split.
    std::uint64_t max_split_size = no_limit;
    static constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();
    /// A request of at least max_split_size leaves less than this of its block unused.
    std::uint64_t max_non_split_rounding = 20ULL << 20;

    /// Above this fraction of total_memory, unused large segments are freed before the pool grows,
    /// those first that have been unused for the most allocations; 0: never.
    double garbage_collection_threshold = 0;
    /// 0: DeviceBackend::total_memory(); where that is unknown, no garbage is collected.
    std::uint64_t total_memory = 0;

    /// PyTorch's expandable_segments: memory is mapped page by page into reserved address ranges,
    /// one for small and one for large blocks. Ignored where the backend does not support it.
    bool expandable = false;
    /// The size of one such range; 0: twice total_memory, or 256 GiB where that is unknown.
    std::uint64_t expandable_range = 0;

    /// In expandable ranges: blocks share pages and chunks as long as the ranges for that have at
    /// most this share of total_memory; 1, or where total_memory is unknown: always. Beyond it each
    /// large block has its chunks to itself and no small one crosses a page, as in plain CUDA: what
    /// is free goes back to the device wherever plain CUDA would have it back.
    double packed_share = 1;

    /// So many times at most, in one hold of its lock, the pool decides to give memory of ranges
    /// back; PoolObserver has an event for each. no_limit: all at once, for the replay of
    /// recordings that were made without this limit.
    std::uint64_t unmaps_per_hold = 8;
    /// The same of whole segments.
    std::uint64_t segments_per_hold = 48;

    /// Pool::tick() frees what has been unused for this long, in nanoseconds; 0: nothing.
    std::uint64_t trim_after_ns = 0;
    /// The delay doubles each time that memory is needed again within `regrown_within_ns` of being
    /// freed by it: a program with long steps soon keeps its memory, and other processes wait
    /// longer for it each time.
    bool trim_backoff = false;
    static constexpr std::uint64_t regrown_within_ns = 10'000'000'000;

    bool operator==(const PoolOptions&) const = default;
};

/// The options of one of a process's contexts on a device. Only the first packs blocks: so the
/// share is that of all of them.
inline PoolOptions options_of_context(PoolOptions options, bool first) {
    options.packed_share = first || options.packed_share >= 1 ? options.packed_share : 0;
    return options;
}

/// Empty when `options` are valid for a Pool, else one sentence saying which value is wrong and
/// what it must be. To be called on any options that come from a user.
std::string problem_with(const PoolOptions& options);

}  // namespace memlab::allocator
