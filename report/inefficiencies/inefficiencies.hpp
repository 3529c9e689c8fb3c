// Finds memory inefficiencies in a recording and suggests changes.
#pragma once

#include <string>
#include <vector>

#include "report/inefficiencies/detect_patterns.hpp"
#include "report/reading/find_event_log.hpp"

namespace memlab::report {

struct Inefficiencies {
    std::vector<DeviceFindings> devices;
    std::string steps;  ///< what ended a step: `scope "step"`; empty: there are no steps
    std::vector<Pattern> looked_for;  ///< wanted, and shown by this recording if they are there
    std::vector<std::string> notes;   ///< whole sentences: what could not be examined
};

/// `log` is the event log of `report`; it is read once, a very long one twice. `problem`: what is
/// missing ("what; what to do"); then there are no findings. The result points into `report`.
///
/// Omits findings that save less than 1 % of the device's peak, except growing leaks, and of those
/// that save calls, less than 1 % of its allocations or fewer than 100.
Inefficiencies find_inefficiencies(const model::Report& report, Resolver& resolver,
                                   const FoundLog& log, const InefficiencyQuery& query,
                                   std::string* problem);

}  // namespace memlab::report
