// Memory that will be needed soon, asked for meanwhile. Between two allocations a program's own
// work drives what the recorder needs out of the processor's caches; what is asked for while the
// call is still on its way comes back side by side and costs nothing by the time it is used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::trace {

/// Brings `size` bytes from `begin` on closer, to be written to. Any address will do, also one that
/// nothing is at. One request more than there may be lines: to find out how many there are would
/// take branches, which the program has driven out, too.
///
/// Always inlined: gcc takes a function that does nothing but this for one that does nothing, and
/// leaves its calls out.
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
