// What a limit is held against: one metric of one process, and the code that is responsible for it.
//
// A measurement that a report cannot give is never taken for zero: `absent` says why there is none,
// and `unproven` that the report knows a lower bound only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/check/limit.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"
#include "report/views/suppressions.hpp"

namespace memlab::check {

/// A place and its part of a measurement.
struct Responsible {
    report::Place place;
    std::string kind;  ///< of memory; empty: several, or unknown
    Figure figure;
};

struct Measurement {
    std::optional<std::uint64_t> device;  ///< index; none: of the process, all devices together
    Figure figure;
    std::string note;  ///< how it was measured, where that is not plain: "steady over 100 steps"
    std::vector<Responsible> responsible;  ///< largest first
};

struct Measured {
    std::vector<Measurement> values;  ///< by device
    std::string absent;               ///< without values: "what; what to do"
    bool unknowable = false;          ///< absent, yet there may be something: never passed over
    std::string unproven;             ///< the true figure may be larger: "what; what to do"
};

/// A process and what was worked out of its report. What it refers to must outlive it.
struct MeasuredProcess {
    /// Kinds of memory that the metric leaves out of the whole: they have limits of their own.
    std::vector<std::string> left_out{};
    const report::Summary& summary;
    report::Resolver& resolver;
    const std::string& damage;  ///< what is wrong with the recording, as its reader says; or empty
    const std::vector<report::Suppression>& suppressions;  ///< what is no leak, of all sites
};

/// Never throws but std::bad_alloc.
Measured measure(const MeasuredProcess& process, Metric metric, const Subject& subject);

}  // namespace memlab::check
