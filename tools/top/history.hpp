// What memlab-top has seen of each process so far, and what follows from it: growth, curves. Pure:
// samples go in, and no clock is read.
//
// Growth is that of what stays. A training allocates and frees with every step, and a sample may
// hit any moment of one: so the lowest level in the latter half of the last two minutes is compared
// with the lowest in the former half. Level memory has no growth however it swings, a steady leak
// has its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tools/live/machine_sample.hpp"

namespace memlab::tools {

/// Of a process at one moment. Bytes.
struct HistoryPoint {
    std::uint64_t time_ns = 0;
    std::uint64_t used = 0;  ///< as NVML says, else what is reserved
    std::uint64_t allocated = 0;
    std::uint64_t reserved = 0;
    std::optional<std::uint64_t> tensors;
    std::optional<std::uint64_t> steps;
    bool memlab = false;

    /// The level that growth is of: tensors, else allocated, else used.
    std::uint64_t level() const { return tensors ? *tensors : memlab ? allocated : used; }
};

HistoryPoint point_of(const ProcessSample& process, std::uint64_t time_ns);

/// Bytes; none: it was not seen for long enough, or no steps are known.
struct Growth {
    std::optional<std::int64_t> per_minute;
    std::optional<std::int64_t> per_step;
};

/// `points` in order of time.
Growth growth_of(const std::vector<HistoryPoint>& points);

/// Thread-safety: none.
class History {
  public:
    /// Beyond that older points are thinned out, the higher of each two stays.
    static constexpr std::size_t most_points = 1200;

    void add(MachineSample sample);

    bool empty() const { return latest_.time_ns == 0; }
    const MachineSample& latest() const { return latest_; }
    /// Empty: it was not seen.
    const std::vector<HistoryPoint>& points(const ProcessSample& process) const;
    Growth growth(const ProcessSample& process) const { return growth_of(points(process)); }

  private:
    /// The start tells a process from a later one of the same id.
    using Key = std::pair<pid_t, std::uint64_t>;
    static Key key_of(const ProcessSample& process) {
        return {process.pid(), process.facts.start_ticks};
    }

    MachineSample latest_;
    std::map<Key, std::vector<HistoryPoint>> points_;
};

}  // namespace memlab::tools
