// The memory use of one process of a run, summed over its GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "model/bounded_sum.hpp"
#include "model/report.hpp"
#include "report/device_allocations.hpp"
#include "report/levels.hpp"

namespace memlab::report {

/// Bytes, except `allocations`: a number of allocations, of device memory. The first four are
/// without managed and pinned memory, which no curve of a GPU has.
struct ProcessStats {
    std::uint64_t allocated_peak = 0;
    std::uint64_t reserved_peak = 0;
    std::uint64_t at_end = 0;  ///< still allocated
    std::uint64_t allocations = 0;
    std::uint64_t managed_peak = 0;
    std::uint64_t pinned_peak = 0;
    std::size_t gpus = 0;  ///< of which it had memory; in no document

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"allocated_peak_bytes", "each GPU at its own peak"}, self.allocated_peak);
        visit.number({"reserved_peak_bytes", "each GPU at its own peak"}, self.reserved_peak);
        visit.number({"allocated_at_end_bytes", "still allocated at the end"}, self.at_end);
        visit.number({"allocations", "how many, of device memory"}, self.allocations);
        visit.number({"managed_peak_bytes", "of managed memory, each GPU at its own peak"},
                     self.managed_peak);
        visit.number({"pinned_peak_bytes", "of pinned host memory, each GPU at its own peak"},
                     self.pinned_peak);
    }
};

/// `only`: of this GPU only, by its index in the process. `level`: driver or framework; both would
/// count an allocator's segments twice.
inline ProcessStats process_stats(const model::Report& report,
                                  const std::optional<std::uint64_t>& only = std::nullopt,
                                  Level level = Level::driver) {
    ProcessStats sums;
    const DevicesAt shown(report, level);
    for (const model::Device& device : report.devices) {
        if (only && device.gpu() != *only) {
            continue;
        }
        for (const auto& [kind, totals] : device.kinds) {
            model::add_to(sums.managed_peak, kind == "managed" ? totals.peak_bytes : 0);
            model::add_to(sums.pinned_peak, kind == "pinned" ? totals.peak_bytes : 0);
        }
        if (!shown.has(device)) {
            continue;
        }
        const bool any = device.curve(model::Curve::allocated).peak_bytes != 0;
        sums.gpus += any ? 1 : 0;
        model::add_to(sums.allocated_peak, device.curve(model::Curve::allocated).peak_bytes);
        model::add_to(sums.reserved_peak, device.curve(model::Curve::reserved).peak_bytes);
        model::add_to(sums.at_end, device.curve(model::Curve::allocated).at_end_bytes);
        model::add_to(sums.allocations, allocation_count(device, Counted::device_memory));
    }
    return sums;
}

}  // namespace memlab::report
