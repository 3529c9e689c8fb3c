// What the processes of a run held together, moment by moment, from their event logs: the peak of a
// GPU that several used, exactly, where timelines only give bounds.
//
// The logs are read side by side and merged by time, a stretch of each in memory at once; a log is
// opened when its process starts and closed when it has ended. Processes that share a GPU share a
// machine: their times are compared by its monotonic clock. Where the starts by that clock and by
// the wall clock do not agree (containers with a clock of their own, a machine that was started
// anew in between), the wall clock counts.
//
// As elsewhere, what was recorded counts: a process that was cut off holds until its last record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/runs/collection.hpp"
#include "report/runs/combined_usage.hpp"

namespace memlab::report {

/// Makes the peaks of those GPUs exact for which bounds alone are known and all logs are there,
/// whole. The others stay as they are. Time: that of reading these logs. Throws nothing but
/// std::bad_alloc.
void read_moments(const RunCollection& run, std::vector<GpuTogether>& gpus);

}  // namespace memlab::report
