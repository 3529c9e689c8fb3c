// One pass over an event log: collects usage patterns of allocations by call site. It takes the
// report of the log, for which the log was read before: which scopes or marks end the program's
// steps is known at the end only, and what outlives one is found with each free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/inefficiencies/allocated_curve.hpp"
#include "report/pool_view/layout.hpp"

namespace memlab::report {

/// The patterns of the allocations of one site.
struct SitePatterns {
    std::uint64_t max_live = 0;        ///< live at once
    std::uint64_t max_live_bytes = 0;  ///< live at once
    std::uint64_t max_size = 0;        ///< bytes of the largest
    std::uint64_t replaced_count = 0;  ///< freed right after the next of the same size was made
    std::uint64_t replaced_bytes = 0;
    std::uint64_t outlived_count = 0;  ///< freed in a later step than allocated in
    std::uint64_t outlived_bytes = 0;
    std::uint64_t outlived_steps = 0;  ///< sum of the steps in between
    /// Never freed, and at the end more than twice as old as any freed one of the site became.
    std::uint64_t outstayed_count = 0;
    std::uint64_t outstayed_bytes = 0;
    std::uint64_t rounding_at_peak = 0;
    std::uint64_t count_at_peak = 0;  ///< allocations with rounding at the peak
    std::uint64_t unused_count = 0;   ///< the GPU was idle during the lifetime
    std::uint64_t unused_bytes = 0;
};

/// Bytes of one site that the program did not need from event number `begin` to event number `end`,
/// where they were freed.
struct AvoidableSpan {
    enum class Reason : std::uint8_t {
        replaced,
        outlived,
        unused,
        leaked,
        outstayed,  ///< never freed: from the allocation on
        collected,  ///< freed by a garbage collector: from the allocation on
        rounding,   ///< the part of an allocation that was not asked for
    };
    static constexpr std::size_t reason_count = 7;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t bytes = 0;
    std::uint32_t site = 0;
    Reason reason = Reason::replaced;
};

/// The pools of a device just before its reserved curve first reached its peak.
struct Growth {
    std::uint64_t time_ns = 0;
    std::vector<SegmentLayout> segments;  ///< by address
};

struct CollectedPatterns {
    std::vector<SitePatterns> sites;       ///< by index into Report::sites
    std::vector<AvoidableSpan> avoidable;  ///< at most `max_avoidable`
    std::uint64_t omitted = 0;             ///< spans beyond that
    std::vector<Growth> growth;            ///< by index into Report::devices; time 0: none
    AllocatedCurve allocated;              ///< by number of the event, as in `avoidable`
    /// By group of sites: the device's highest allocated bytes without theirs.
    std::vector<std::uint64_t> peaks_without;
    std::uint64_t steps = 0;  ///< finished
    std::string stretch;      ///< a sentence on what of the recording was examined; empty: all
};

/// Limit of stored spans: 4 million take 128 MiB.
inline constexpr std::size_t max_avoidable = std::size_t{4} << 20;

/// Whether every kernel, copy and fill was recorded.
bool all_work_recorded(const model::Report& report);

/// Reads `log`, the event log of `report`. `steps`: one of Report::steps; null: no steps. `groups`:
/// by site, the number of its group, counted from 0; the sites of a group are of one device.
CollectedPatterns collect_patterns(const model::Report& report, const std::string& log,
                                   const model::Steps* steps,
                                   const std::vector<std::uint32_t>& groups);

}  // namespace memlab::report
