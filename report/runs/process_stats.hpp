// The memory use of one process of a run, summed over its GPUs.
#pragma once

#include <cstdint>
#include <optional>

#include "report/device_allocations.hpp"
#include "trace/json/bounded_sum.hpp"
#include "trace/json/report.hpp"

namespace memlab::report {

/// Bytes, except `allocations`: a number of allocations, of device memory.
struct ProcessStats {
    std::uint64_t allocated_peak = 0;
    std::uint64_t reserved_peak = 0;
    std::uint64_t at_end = 0;  ///< still allocated
    std::uint64_t allocations = 0;
};

/// `only`: of this GPU only, by its index in the process.
inline ProcessStats process_stats(const Report& report,
                                  const std::optional<std::uint64_t>& only = std::nullopt) {
    ProcessStats sums;
    for (const Device& device : report.devices) {
        // An allocator's segments are allocations of its GPU's.
        if (!device.is_gpu() || (only && device.index != *only)) {
            continue;
        }
        add_to(sums.allocated_peak, device.curve(Curve::allocated).peak_bytes);
        add_to(sums.reserved_peak, device.curve(Curve::reserved).peak_bytes);
        add_to(sums.at_end, device.curve(Curve::allocated).at_end_bytes);
        add_to(sums.allocations, allocation_count(device, Counted::device_memory));
    }
    return sums;
}

}  // namespace memlab::report
