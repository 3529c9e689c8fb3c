// The input of exporters: a report, its event log, and the selected part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "report/device_label.hpp"
#include "report/summary/filter.hpp"
#include "report/symbols/resolver.hpp"
#include "trace/json/report.hpp"
#include "trace/record.hpp"

namespace memlab::exports {

/// The weight of a stack.
enum class Weight : std::uint8_t {
    peak,   ///< bytes held at the device's allocated peak
    bytes,  ///< bytes of all allocations ever made
    count,  ///< allocations ever made
    live,   ///< bytes never freed
};

/// A recording that was read. `report.stacks`, `frames` and `python_frames` are indexed by the ids
/// of the log's definitions.
struct Recording {
    report::Report report;
    std::string log;      ///< the event log's path; empty: report only
    std::string warning;  ///< damage of the log: what and where
};

struct Input {
    const Recording& recording;
    report::Resolver& resolver;
    const report::Filter& filter;
    std::optional<std::uint64_t> device;  ///< only this GPU; none: all
    Weight by = Weight::peak;

    bool wants(std::uint64_t index) const { return !device || report::is_on(index, *device); }
};

/// The result of an exporter.
struct Result {
    bool written = false;  ///< false: the sink failed
    std::string warning;   ///< a sentence on what is missing in the output; empty: nothing
};

}  // namespace memlab::exports
