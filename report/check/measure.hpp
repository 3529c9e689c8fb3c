// Measures one metric of one process, and the code that is responsible for it.
//
// A metric that the report does not have is never taken for zero: `absent` says why it is missing,
// and `unproven` why the figure is only a lower bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/check/limit.hpp"
#include "report/check/place_sums.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"
#include "report/views/suppressions.hpp"

namespace memlab::report::check {

struct Measurement {
    std::optional<std::uint64_t> device;  ///< index; none: the whole process
    Figure figure;
    std::string note;  ///< how it was measured, if not obvious: "steady over 100 steps"
    std::vector<Responsible> responsible;  ///< largest first
};

struct Measured {
    std::vector<Measurement> values;  ///< by device
    std::string absent;               ///< without values: "what; what to do"
    bool unknowable = false;          ///< absent, but may be above zero: always a problem
    std::string unproven;             ///< the true figure may be larger: "what; what to do"
};

/// A process and its summary. Everything referred to must outlive it.
struct MeasuredProcess {
    /// Kinds of memory with their own limit: not counted in the figure of the whole process.
    std::vector<std::string> excluded_kinds{};
    const report::Summary& summary;
    report::Resolver& resolver;
    const std::vector<report::Suppression>& suppressions;  ///< memory that is not a leak
};

/// Throws std::bad_alloc only.
Measured measure(const MeasuredProcess& process, Metric metric, const Subject& subject);

}  // namespace memlab::report::check
