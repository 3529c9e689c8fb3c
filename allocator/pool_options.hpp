// The pool's policy, as values. The option table (interpose/options) parses them from text.
#pragma once

#include <cstdint>

namespace memlab::allocator {

/// What cudaFree promises about the host; see Pool::free.
enum class FreeSync : std::uint8_t {
    automatic,  ///< wait for the device, but only when it is busy: the host sees finished results
    always,     ///< wait always
    never,      ///< never stop the host; reuse is still ordered behind the fence
};

/// Sizes in bytes. The defaults are PyTorch's.
struct PoolOptions {
    FreeSync free_sync = FreeSync::automatic;
    std::uint64_t rounding = 512;                 ///< block sizes are multiples of it
    std::uint64_t small_size = 1ULL << 20;        ///< up to here: from small segments
    std::uint64_t small_segment = 2ULL << 20;     ///< size of a small segment
    std::uint64_t medium_size = 10ULL << 20;      ///< below: from medium segments
    std::uint64_t medium_segment = 20ULL << 20;   ///< size of a medium segment
    std::uint64_t large_rounding = 2ULL << 20;    ///< larger segments are multiples of it
};

}  // namespace memlab::allocator
