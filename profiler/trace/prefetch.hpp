// Memory that will be needed soon, asked for meanwhile. Between two allocations a program's own
// work drives what the recorder needs out of the processor's caches; what is asked for while the
// call is still on its way comes back side by side and costs nothing by the time it is used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::trace {

/// Brings [begin, begin + size) closer, to be written to. Any address will do, also one that
/// nothing is at.
[[gnu::always_inline]] inline void prefetch_to_write(const void* begin, std::size_t size) {
    constexpr std::uintptr_t line = 64;
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    for (std::uintptr_t at = address & ~(line - 1); at < address + size; at += line) {
        __builtin_prefetch(reinterpret_cast<const void*>(at), 1);
    }
}

}  // namespace memlab::trace
