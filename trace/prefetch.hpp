// Prefetching for the recorder. Between two allocations the program's own work evicts the
// recorder's data from the CPU caches; prefetched while the driver call is still running, the cache
// misses overlap it and each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::trace {

/// Prefetches `size` bytes from `begin` for writing. Any address is allowed, also an unmapped one.
/// Issues one prefetch more than may be needed: the exact number of cache lines would take
/// branches, which are mispredicted here.
///
/// Always inlined: gcc treats a function that only prefetches as having no effect and drops calls
/// to it.
template <std::size_t size>
[[gnu::always_inline]] inline void prefetch_to_write(const void* begin) {
    const auto first = reinterpret_cast<std::uintptr_t>(begin);
    constexpr std::size_t line = 64;
#pragma GCC unroll 16
    for (std::size_t offset = 0; offset < size; offset += line) {
        __builtin_prefetch(reinterpret_cast<const void*>(first + offset), 1);
    }
    __builtin_prefetch(reinterpret_cast<const void*>(first + size - 1), 1);
}

}  // namespace memlab::trace
