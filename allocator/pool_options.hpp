// The pool's policy, as values. The option table (interpose/options) parses them from text.
#pragma once

#include <cstdint>
#include <string>

namespace memlab::allocator {

/// What cudaFree promises about the host; see Pool::free.
enum class FreeSync : std::uint8_t {
    automatic,  ///< wait for the device, but only when it is busy: the host sees finished results
    always,     ///< wait always
    never,      ///< never stop the host; reuse is still ordered behind the fence
};

/// Sizes in bytes. The defaults are PyTorch's, but for coarse_alignment, which PyTorch does not
/// have; set to `rounding` it is off and the layout is PyTorch's to the byte.
struct PoolOptions {
    FreeSync free_sync = FreeSync::automatic;
    std::uint64_t rounding = 512;                ///< block sizes are multiples of it
    std::uint64_t coarse_alignment = 64 << 10;   ///< blocks this large begin at a multiple of it
    std::uint64_t small_size = 1ULL << 20;       ///< up to here: from small segments
    std::uint64_t small_segment = 2ULL << 20;    ///< size of a small segment
    std::uint64_t medium_size = 10ULL << 20;     ///< below: from medium segments
    std::uint64_t medium_segment = 20ULL << 20;  ///< size of a medium segment
    std::uint64_t large_rounding = 2ULL << 20;   ///< larger segments are multiples of it
};

/// Empty when a Pool can work with `options`, else one sentence saying which value is wrong and
/// what it must be. Whoever takes options from a user calls it before making a Pool.
std::string problem_with(const PoolOptions& options);

}  // namespace memlab::allocator
