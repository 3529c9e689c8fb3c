// The combined memory use of several processes on one GPU. Their peaks need not coincide, so the
// sum of the peaks is only an upper bound; the timelines give tighter ones.
//
// Timelines have buckets with a minimum and a maximum. The sum of the minima and of the maxima
// bound the true simultaneous peak: it is between `at_least` and `at_most`. If the event logs
// exist, report/runs/exact_peaks.hpp computes it exactly. Times of different processes are compared
// by the wall clock of their starts: processes that share a GPU share a machine and its clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/runs/collection.hpp"

namespace memlab::report {

struct CombinedPeak {
    std::uint64_t sum = 0;  ///< of the processes' own peaks
    std::uint64_t at_least = 0;
    std::uint64_t at_most = 0;
    std::uint64_t at_wall_ns = 0;  ///< when `at_most` is first reached
    bool from_logs = false;        ///< computed from the event logs; both bounds are equal

    bool exact() const { return at_least == at_most; }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"sum_of_peaks_bytes", "of the processes' own peaks"}, self.sum);
        visit.number({"at_once_at_least_bytes", "the simultaneous peak is no lower"},
                     self.at_least);
        visit.number({"at_once_at_most_bytes", "and no higher"}, self.at_most);
        visit.flag({"from_logs", "the event logs say it: both are the same"}, self.from_logs);
        visit.number({"at_wall_ns", "when it was highest, since the Unix epoch"}, self.at_wall_ns);
    }
};

struct GpuUsage {
    std::string uuid;
    std::string name;
    std::uint64_t total_bytes = 0;
    std::vector<std::string> hosts;      ///< host names of its processes; containers may differ
    std::vector<std::size_t> members;    ///< indexes into RunCollection::members
    std::vector<std::uint64_t> devices;  ///< its Device::index in each of `members`
    CombinedPeak allocated;
    CombinedPeak reserved;

    /// What all documents say of it.
    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"uuid", "as the driver has it; empty where it is unknown"}, self.uuid);
        visit.text({"name", "as the driver has it"}, self.name);
        visit.number({"total_bytes", "the device's memory"}, self.total_bytes);
        visit.texts({"hosts", "names of the machines; those of containers may differ"}, self.hosts);
        visit.object({"allocated", "allocated memory of all its processes"}, self.allocated);
        visit.object({"reserved", "reserved memory of all its processes"}, self.reserved);
    }
};

/// The GPUs of the run in the order of their first use, identified by UUID (or by host and index if
/// they have none). Devices on which a process allocated nothing are left out.
std::vector<GpuUsage> combined_gpu_usage(const RunCollection& run);

}  // namespace memlab::report
