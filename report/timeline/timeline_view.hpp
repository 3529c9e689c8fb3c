// A time range of a recording as data: curves, marks, scopes and failures. How exact it is,
// timeline.hpp says.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/timeline/categories.hpp"
#include "report/timeline/kind_timeline.hpp"
#include "report/timeline/scope_tracker.hpp"

namespace memlab::report {

struct TimelineMark {
    std::uint64_t time_ns = 0;
    std::string name;
};

struct TimelineOom {
    std::uint64_t time_ns = 0;
    std::uint64_t device = 0;
    std::uint64_t requested_bytes = 0;
    std::string api;
};

struct DeviceTimeline {
    using Curve = CurveFigures;
    const model::Device* device = nullptr;
    std::uint64_t bucket_ns = 0;
    std::vector<model::TimelineRow>
        rows;  ///< in order of time; the first has the values at from_ns
    std::array<std::optional<Curve>, model::curve_count> curves;
    std::vector<KindTimeline> kinds;  ///< of memory that `curves` do not include
    bool exact = true;  ///< false: part of it has the report's buckets, not single events
    std::optional<CategoryTimeline> categories;  ///< if they are asked for and there are any
};

struct TimelineView {
    static constexpr std::size_t max_notes = 4096;

    std::uint64_t from_ns = 0;
    std::uint64_t to_ns = 0;
    bool from_log = false;
    bool by_category = false;
    std::vector<DeviceTimeline> devices;  ///< used devices only
    std::vector<TimelineMark> marks;      ///< at most max_notes, as `ooms` and `scopes`
    std::vector<TimelineOom> ooms;
    /// By begin. Not clipped: one may begin before the time range and end after it.
    std::vector<TimelineScope> scopes;
    std::uint64_t left_out = 0;  ///< marks, failures and scopes beyond max_notes
    /// A sentence on what of the time range the event log lacks; empty: nothing.
    std::string stretch;
    /// The part of the time range that is not of single events, exclusive; none: all of it is.
    struct Coarse {
        std::uint64_t from_ns = 0;
        std::uint64_t to_ns = 0;
    };
    std::vector<Coarse> coarse;
};

}  // namespace memlab::report
