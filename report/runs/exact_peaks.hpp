// The exact combined peaks of GPUs that several processes used, from their event logs. Timelines
// only give bounds.
//
// The logs are merged by time, with one chunk of each in memory; a log is opened when its process
// starts and closed when it ends. Processes that share a GPU share a machine, so their times are
// compared by its monotonic clock. If the starts by that clock and by the wall clock disagree
// (containers with their own clock, a reboot in between), the wall clock is used.
//
// A process that was cut off holds its memory until its last record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/runs/collection.hpp"
#include "report/runs/combined_usage.hpp"

namespace memlab::report {

/// Replaces the bounds of those `gpus` whose logs are all present and complete by the exact peaks;
/// the others, and peaks that are exact already, stay unchanged. Takes as long as reading these
/// logs. Throws nothing but std::bad_alloc.
void find_exact_peaks(const RunCollection& run, std::vector<GpuUsage>& gpus);

}  // namespace memlab::report
