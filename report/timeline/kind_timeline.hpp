// Curves of memory that the curves of a device do not include, in a time range: managed memory,
// pinned host memory, other processes' memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "trace/aggregate/totals.hpp"

namespace memlab::report {

/// The values of a curve within a time range.
struct CurveFigures {
    std::uint64_t at_begin = 0;
    std::uint64_t lowest = 0;
    std::uint64_t highest = 0;
    /// The first time; of a report at worst the start of the bucket.
    std::uint64_t highest_ns = 0;
    std::uint64_t at_end = 0;
    bool highest_at_most = false;  ///< the true value may be lower
    bool lowest_at_least = false;  ///< the true value may be higher
};

struct KindTimeline {
    std::string kind;
    std::uint64_t bucket_ns = 0;
    std::vector<model::KindCurve::Row> rows;  ///< in order of time
    CurveFigures figures;
};

/// Collects those of one device while a log is aggregated.
class KindRange {
  public:
    /// The device's state at `now_ns`, in a range that begins at `from_ns`. Costs nothing where the
    /// device has no such memory. May throw std::bad_alloc.
    void sample(const trace::DeviceTotals& device, std::uint64_t from_ns, std::uint64_t now_ns) {
        if (!device.kind_curves.empty()) {
            sample_each(device, from_ns, now_ns);
        }
    }
    std::vector<KindTimeline> timelines() const;

  private:
    struct Sampled {
        trace::TimelineOf<1> timeline;
        CurveFigures figures;
    };
    void sample_each(const trace::DeviceTotals& device, std::uint64_t from_ns,
                     std::uint64_t now_ns);

    std::map<trace::MemoryKind, Sampled> sampled_;
};

/// Those of a report, in the buckets of its whole duration. May throw std::bad_alloc.
std::vector<KindTimeline> kind_timelines(const model::Device& device, std::uint64_t from_ns,
                                         std::uint64_t to_ns);

}  // namespace memlab::report
