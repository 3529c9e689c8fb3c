// What an exporter is given: a report, the event log that it came from, and which part is wanted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "report/model.hpp"
#include "report/summary/filter.hpp"
#include "report/symbols/resolver.hpp"
#include "trace/record.hpp"

namespace memlab::exports {

/// What the boxes and lines of a stack format stand for.
enum class Weight : std::uint8_t {
    peak,   ///< bytes held at the device's allocated peak
    bytes,  ///< bytes of all allocations ever made
    count,  ///< allocations ever made
    live,   ///< bytes never freed
};

/// A recording that was read. `report.stacks`, `frames` and `python_frames` have the
/// numbers of the log's definitions.
struct Recording {
    report::Report report;
    std::string log;      ///< the event log's path; empty: there is only the report
    std::string warning;  ///< the log is damaged: what, and where
};

struct Input {
    const Recording& recording;
    report::Resolver& resolver;
    const report::Filter& filter;
    std::optional<std::uint64_t> device;  ///< only this one
    Weight by = Weight::peak;

    bool wants(std::uint64_t index) const { return !device || *device == index; }
};

/// How an exporter ended.
struct Result {
    bool written = false;  ///< false: the sink failed
    std::string warning;   ///< what the output lacks, in a sentence; empty: nothing
};

}  // namespace memlab::exports
