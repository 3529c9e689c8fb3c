// The costs of driver calls, from which a what-if estimates time.
//
// Medians on one H100 80GB, driver 580.159, CUDA 13.0. Ratios vary less between machines than
// times, so the estimates are for comparing the rows of one table.
//
//  - cudaMalloc + cudaFree, a pair: 85 us for 512 B and for 1 MiB, 101 us for 20 MiB, 807 us for
//    1 GiB; cudaMalloc of 2 MiB alone 65 us. So a base of 65 and 20, and 0.71 us a MiB for the
//    pair, divided in the same proportion.
//  - cuMemCreate 26 us for 2 MiB, 42 for 20 MiB, 584 for 1 GiB; cuMemMap + SetAccess + Unmap 72 us
//    for 2 MiB, 110 for 1 GiB. Unmapping and releasing is taken as a third of mapping.
//  - cudaMallocAsync + cudaFreeAsync: 1.27 us a pair from the pool.
//  - a pool in the process: 0.3 us a pair, including cudart.
// A cudaFree also waits for the device; that wait is not included.
#pragma once

#include <cstdint>

namespace memlab::report::whatif::cost {

inline constexpr double mib = 1 << 20;

/// Nanoseconds.
inline constexpr double malloc_base = 65000.0;
inline constexpr double malloc_per_mib = 540.0;
inline constexpr double free_base = 20000.0;
inline constexpr double free_per_mib = 170.0;
inline constexpr double create_base = 25000.0;
inline constexpr double create_per_mib = 546.0;
inline constexpr double map_base = 48000.0;
inline constexpr double map_per_mib = 25.0;
inline constexpr double unmap_base = 24000.0;
inline constexpr double unmap_per_mib = 12.0;
inline constexpr double async_call = 635.0;

inline double time_ns(double base, double per_mib, std::uint64_t bytes) {
    return base + per_mib * (static_cast<double>(bytes) / mib);
}

}  // namespace memlab::report::whatif::cost
