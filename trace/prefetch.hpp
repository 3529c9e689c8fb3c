// Prefetching for the recorder. Between two allocations the program's own work evicts the
// recorder's data from the CPU caches; prefetched while the driver call is still running, the cache
// misses overlap it and each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::trace {

/// Prefetches the cache line of `at` for writing. Any address is allowed, also an unmapped one.
///
/// By PREFETCHW, for which gcc's builtin has a plain prefetch unless it is told that the processor
/// has the instruction (where it has not, it does nothing: Intel's and AMD's manuals). A plain one
/// leaves a line that another core has read shared; the store then waits for that core, and the
/// next locked instruction for the store.
[[gnu::always_inline]] inline void prefetch_line_to_write(std::uintptr_t at) {
    asm volatile("prefetchw %0" : : "m"(*reinterpret_cast<const char*>(at)));
}

/// Prefetches `size` bytes from `begin` for writing. Issues one prefetch more than may be needed,
/// except a single byte: the exact number of cache lines would take branches, which are
/// mispredicted here.
template <std::size_t size>
[[gnu::always_inline]] inline void prefetch_to_write(const void* begin) {
    const auto first = reinterpret_cast<std::uintptr_t>(begin);
    constexpr std::size_t line = 64;
#pragma GCC unroll 16
    for (std::size_t offset = 0; offset < size; offset += line) {
        prefetch_line_to_write(first + offset);
    }
    if constexpr (size > 1) {
        prefetch_line_to_write(first + size - 1);
    }
}

}  // namespace memlab::trace
