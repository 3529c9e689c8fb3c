// A stand-in for libc10.so: what PyTorch's profiler is told.
#include "tests/programs/pytorch/c10.hpp"

#define EXPORT __attribute__((visibility("default")))

namespace {
std::uint64_t calls = 0;
std::uint64_t failures = 0;
std::int64_t sums[8] = {};
}  // namespace

namespace c10 {

EXPORT void reportMemoryUsageToProfiler(void* /*pointer*/, std::int64_t bytes, Total allocated,
                                        Total /*reserved*/, Device device) {
    ++calls;
    if (device.type == 1) {
        std::int64_t& sum = sums[device.index];
        sum += bytes;
        failures += static_cast<std::int64_t>(allocated) != sum ? 1 : 0;
    }
}

EXPORT void reportOutOfMemoryToProfiler(std::int64_t /*bytes*/, Total /*allocated*/,
                                        Total /*reserved*/, Device /*device*/) {
    ++calls;
}

}  // namespace c10

/// How often the functions were called; 0 if with totals that are not the sum.
extern "C" EXPORT std::uint64_t told() {
    return failures == 0 ? calls : 0;
}
