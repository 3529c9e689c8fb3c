// The input of exporters: a report, its event log, the selected part, and what it is compared with.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/device_label.hpp"
#include "report/lacks.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/summary/filter.hpp"
#include "report/symbols/resolver.hpp"
#include "trace/record.hpp"

namespace memlab::report::exports {

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
    model::Report report;
    FoundLog log;             ///< empty: report only
    std::vector<Lack> lacks;  ///< find_lacks(), and of the run that it is alone in
};

/// A stretch of a recording; both ends are in it.
struct Stretch {
    std::uint64_t from_ns = 0;
    std::uint64_t until_ns = std::numeric_limits<std::uint64_t>::max();

    bool operator==(const Stretch&) const = default;
};

struct Input {
    const Recording& recording;
    report::Resolver& resolver;
    const report::Filter& filter;
    std::optional<std::uint64_t> device;  ///< only this GPU; none: all
    Weight by = Weight::peak;
    std::string process_name = {};  ///< for people; empty: that of the executable
    Stretch stretch = {};           ///< of formats of single events
    std::string moment = {};        ///< in words, if the report is the one of a moment
    const Input* before = nullptr;  ///< of formats that compare: what it is compared with

    bool wants(std::uint64_t index) const { return !device || report::is_on(index, *device); }
};

/// The result of an exporter.
struct Result {
    bool written = false;  ///< false: the sink failed
    std::string warning;   ///< a sentence on what is missing in the output; empty: nothing
};

}  // namespace memlab::report::exports
