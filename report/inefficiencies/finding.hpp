// What memlab-report inefficiencies finds: ways in which a program holds more memory than it needs,
// or asks for it more often. Each is a pattern that the recording shows, with what it costs; what
// only the program's author can know (whether a value is still needed) is not claimed.
//
// The patterns are DrGPUM's at the level of objects, as far as allocations and frees alone tell of
// them: Lin, Zhou, Su, Liu, Meng: DrGPUM: Guiding Memory Optimization for GPU-Accelerated
// Applications, ASPLOS 2023, https://doi.org/10.1145/3582016.3582044.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/model.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

enum class Pattern : std::uint8_t {
    leak,                  ///< never freed: it grows, or others of the place were freed soon
    late_deallocation,     ///< the old one is freed after the new one was made
    over_long_life,        ///< freed in a later step than the one that made it
    fragmentation_source,  ///< small blocks alone keep segments with much free memory
    late_reuse,            ///< freed, but perhaps still in use by the GPU when the pool grew
    oversized_alignment,   ///< much of what it takes is rounding
    unused_allocation,     ///< the GPU did nothing while it lived
    redundant_allocation,  ///< a few buffers that are kept would serve all of them
    temporary_churn,       ///< the same, of memory that is freed before anything else is allocated
};
inline constexpr std::size_t pattern_count = 9;

/// "leak", "late_deallocation", ...: in the order of Pattern.
const std::vector<std::string>& pattern_names();
const std::string& name_of(Pattern pattern);

/// How sure it is that the program can do without.
enum class Confidence : std::uint8_t {
    possible,  ///< the program may well need it so
    likely,    ///< seldom meant
    certain,   ///< follows from the recording
};
/// "possible", "likely", "certain"
const char* name_of(Confidence confidence);

/// What would be saved. Of a single finding: those of several do not add up.
struct Saving {
    /// Of the device's allocated peak.
    std::uint64_t peak_bytes = 0;
    /// The peak that is left was computed; else peak_bytes is what the peak had of it, and the peak
    /// may only move to another moment.
    bool peak_is_exact = false;
    std::uint64_t reserved_bytes = 0;  ///< of the reserved peak, at most
    std::uint64_t end_bytes = 0;       ///< held at the end
    std::uint64_t calls = 0;           ///< allocations, and as many frees
};

struct Finding {
    Pattern pattern = Pattern::leak;
    Confidence confidence = Confidence::possible;
    Place place;
    std::string kind;
    std::string api;                 ///< of the first site
    std::vector<std::size_t> sites;  ///< indexes into Report::sites
    std::uint64_t count = 0;         ///< allocations that show the pattern
    std::uint64_t bytes = 0;         ///< of them, over the whole run
    Saving saving;
    /// Of redundant_allocation and temporary_churn: so many buffers of so many bytes serve all.
    std::uint64_t buffers = 0;
    std::uint64_t buffer_bytes = 0;
    std::string what;    ///< whole sentences: what was seen
    std::string change;  ///< whole sentences: what to do about it

    bool saves_calls_only() const {
        return pattern == Pattern::redundant_allocation || pattern == Pattern::temporary_churn;
    }
};

struct DeviceFindings {
    const Device* device = nullptr;
    std::uint64_t allocations = 0;  ///< that it made in all
    std::vector<Finding> findings;  ///< that save memory: most bytes first
    std::vector<Finding> calls;     ///< that save calls: most calls first
};

}  // namespace memlab::report
