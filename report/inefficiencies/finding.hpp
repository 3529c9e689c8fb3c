// The findings of memlab-report inefficiencies: patterns of memory that is held longer or allocated
// more often than necessary, and their costs. A finding states what the recording shows, not what
// only the program's author can know (whether a value is still needed).
//
// The patterns are DrGPUM's object-level ones, as far as allocations and frees show them: Lin,
// Zhou, Su, Liu, Meng: DrGPUM: Guiding Memory Optimization for GPU-Accelerated Applications, ASPLOS
// 2023, https://doi.org/10.1145/3582016.3582044.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/summary/unused_reserve.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

enum class Pattern : std::uint8_t {
    leak,                  ///< never freed: it grows, or others of the same place were freed soon
    late_deallocation,     ///< the old buffer is freed after the new one was allocated
    over_long_life,        ///< freed in a later step than it was allocated in
    fragmentation_source,  ///< a few small blocks keep large segments from being released
    late_reuse,            ///< freed, but perhaps still in use by the GPU when the pool grew
    oversized_alignment,   ///< a large part of it is rounding
    unused_allocation,     ///< the GPU was idle during its lifetime
    reference_cycle,       ///< freed only when the language's garbage collector ran
    redundant_allocation,  ///< a few persistent buffers could serve all of them
    temporary_churn,       ///< the same, freed before anything else is allocated
    unused_reserve,        ///< of a device: far more is reserved than was ever allocated
};

/// "leak", "late_deallocation", ...: in the order of Pattern.
const std::vector<std::string>& pattern_names();
const std::string& name_of(Pattern pattern);

/// How certain it is that the memory can be saved.
enum class Confidence : std::uint8_t {
    possible,  ///< the program may need it
    likely,    ///< rarely intended
    certain,   ///< follows from the recording
};
/// "possible", "likely", "certain"
const char* name_of(Confidence confidence);

/// What fixing the finding would save. Savings of several findings do not add up.
struct Saving {
    /// Of the device's allocated peak.
    std::uint64_t peak_bytes = 0;
    /// True: the remaining peak was computed. False: peak_bytes is the part of the peak, which may
    /// only move to another time.
    bool peak_is_exact = false;
    std::uint64_t reserved_bytes = 0;  ///< upper bound, of the reserved peak
    std::uint64_t end_bytes = 0;       ///< held at the end
    std::uint64_t calls = 0;           ///< allocations; as many frees
};

struct Finding {
    Pattern pattern = Pattern::leak;
    Confidence confidence = Confidence::possible;
    Place place;
    std::string kind;
    std::string api;                 ///< of the first site
    std::vector<std::size_t> sites;  ///< indexes into Report::sites
    std::uint64_t count = 0;         ///< allocations with the pattern
    std::uint64_t bytes = 0;         ///< of these, over the whole run
    Saving saving;
    /// Of redundant_allocation and temporary_churn: number and size of buffers that would do.
    std::uint64_t buffers = 0;
    std::uint64_t buffer_bytes = 0;
    std::string what;    ///< whole sentences: the observation
    std::string change;  ///< whole sentences: the suggested change

    bool saves_calls_only() const {
        return pattern == Pattern::redundant_allocation || pattern == Pattern::temporary_churn;
    }
};

/// The sum over these sites. Saturates.
model::Collected sum_collected(const model::Report& report, const std::vector<std::size_t>& sites);

struct DeviceFindings {
    const model::Device* device = nullptr;
    std::uint64_t allocations = 0;  ///< on this device in all
    std::uint64_t least_bytes = 0;  ///< what saves less is not told
    std::optional<UnusedReserve> reserve = {};
    /// The place that holds most of those with many allocations, none of which was ever freed.
    std::uint64_t kept_bytes = 0;
    std::uint64_t kept_count = 0;
    Place kept_place = {};
    model::Collected collected;     ///< of the sites that are examined
    std::vector<Finding> findings;  ///< that save memory: most bytes first
    std::vector<Finding> calls;     ///< that save calls: most calls first
};

}  // namespace memlab::report
