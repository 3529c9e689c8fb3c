// The clock and the average of the benchmarks. C++17: nvcc compiles it too.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace memlab::bench {

using Clock = std::chrono::steady_clock;

inline double nanoseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace memlab::bench
