// What the processes of a run took of one GPU together. The peaks of single processes need not
// coincide, so their sum is more than there ever was; the timelines say when each was how high.
//
// A timeline has buckets with a least and a largest value, so the sum at one moment is known
// between two bounds: the true simultaneous peak lies between `at_least` and `at_most`;
// report/runs/moments.hpp finds it where the event logs are there. Times of
// different processes are compared by the wall clock of their starts: processes that share a GPU
// share a machine and so its clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/runs/collection.hpp"

namespace memlab::report {

struct TogetherPeak {
    std::uint64_t sum = 0;  ///< of the processes' own peaks
    std::uint64_t at_least = 0;
    std::uint64_t at_most = 0;
    std::uint64_t at_wall_ns = 0;  ///< begin of the first moment at `at_most`
    bool from_logs = false;        ///< the event logs say it, both bounds are the same

    bool exact() const { return at_least == at_most; }
};

struct GpuTogether {
    std::string uuid;
    std::string name;
    std::uint64_t total_bytes = 0;
    std::vector<std::string> hosts;  ///< as its processes call them; containers may differ
    std::vector<std::size_t> members;
    std::vector<std::uint64_t> devices;  ///< Device::index of it in each of `members`
    TogetherPeak allocated;
    TogetherPeak reserved;
};

/// The GPUs of the run by UUID (a device without one is its host's own, by index), in the order of
/// their first use. Devices that a process saw and never used do not count.
std::vector<GpuTogether> gpus_together(const RunCollection& run);

}  // namespace memlab::report
