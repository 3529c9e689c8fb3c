// What the test's stand-ins for libc10.so and libc10_cuda.so share: PyTorch's names, and nothing of
// its code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace c10 {

struct Device {
    std::int8_t type;
    std::int8_t index;
};

#ifdef MEMLAB_SIGNED_TOTALS  // as before PyTorch 2.3
using Total = std::int64_t;
#else
using Total = std::size_t;
#endif

#ifdef MEMLAB_OTHER_FUNCTION
#define reportMemoryUsageToProfiler reportMemoryUsage
#endif
void reportMemoryUsageToProfiler(void* pointer, std::int64_t bytes, Total allocated, Total reserved,
                                 Device device);
void reportOutOfMemoryToProfiler(std::int64_t bytes, Total allocated, Total reserved,
                                 Device device);

}  // namespace c10

/// Mapped memory of a cache, whose handle another library takes away and replaces.
struct MappedSegment {
    std::uint64_t address;
    std::uint64_t size;
    unsigned long long* handle;
};

/// Of one GPU's cache, in bytes and blocks.
struct CacheStats {
    std::uint64_t allocated;
    std::uint64_t peak_allocated;
    std::uint64_t reserved;
    std::uint64_t peak_reserved;
    std::uint64_t blocks;  ///< handed out so far
    std::uint64_t live_blocks;
    std::uint64_t segments;
};
