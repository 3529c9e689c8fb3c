#include "tools/top/history.hpp"

#include <algorithm>
#include <cmath>

namespace memlab::tools {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t window_ns = 120 * second_ns;
constexpr std::uint64_t least_ns = 8 * second_ns;
constexpr std::size_t least_points = 4;

/// Half as many of the older half.
void thin_out(std::vector<HistoryPoint>& points) {
    std::vector<HistoryPoint> kept;
    const std::size_t half = points.size() / 2 / 2 * 2;
    for (std::size_t i = 0; i < half; i += 2) {
        kept.push_back(points[i].level() >= points[i + 1].level() ? points[i] : points[i + 1]);
    }
    kept.insert(kept.end(), points.begin() + static_cast<std::ptrdiff_t>(half), points.end());
    points = std::move(kept);
}

}  // namespace

HistoryPoint point_of(const ProcessSample& process, std::uint64_t time_ns) {
    HistoryPoint point;
    point.time_ns = time_ns;
    point.used = process.known_bytes();
    point.allocated = process.allocated();
    point.reserved = process.reserved();
    point.tensors = process.tensors();
    point.memlab = process.status.has_value();
    if (process.status) {
        point.steps = process.status->step_count;
    }
    return point;
}

Growth growth_of(const std::vector<HistoryPoint>& points) {
    Growth growth;
    if (points.empty()) {
        return growth;
    }
    const std::uint64_t end = points.back().time_ns;
    const auto first = std::find_if(points.begin(), points.end(), [end](const HistoryPoint& point) {
        return point.time_ns + window_ns >= end;
    });
    const std::uint64_t span = end - first->time_ns;
    if (points.end() - first < static_cast<std::ptrdiff_t>(least_points) || span < least_ns) {
        return growth;
    }
    const std::uint64_t middle = first->time_ns + span / 2;
    std::uint64_t before = UINT64_MAX;
    std::uint64_t after = UINT64_MAX;
    for (auto point = first; point != points.end(); ++point) {
        std::uint64_t& lowest = point->time_ns < middle ? before : after;
        lowest = std::min(lowest, point->level());
    }
    const double bytes = static_cast<double>(after) - static_cast<double>(before);
    const double seconds = static_cast<double>(span) / 2 / static_cast<double>(second_ns);
    growth.per_minute = std::llround(bytes / seconds * 60);
    const HistoryPoint& last = points.back();
    if (first->steps && last.steps && *last.steps >= *first->steps + 2) {
        const double steps = static_cast<double>(*last.steps - *first->steps) / 2;
        growth.per_step = std::llround(bytes / steps);
    }
    return growth;
}

void History::add(MachineSample sample) {
    std::map<Key, std::vector<HistoryPoint>> kept;
    for (const ProcessSample& process : sample.processes) {
        const Key key = key_of(process);
        std::vector<HistoryPoint>& points = kept[key];
        const auto known = points_.find(key);
        if (known != points_.end()) {
            points = std::move(known->second);
        }
        // One that did not answer this time: its curve goes on when it does again.
        if (!process.memlab || process.status || points.empty()) {
            points.push_back(point_of(process, sample.time_ns));
        }
        if (points.size() > most_points) {
            thin_out(points);
        }
    }
    points_ = std::move(kept);
    latest_ = std::move(sample);
}

const std::vector<HistoryPoint>& History::points(const ProcessSample& process) const {
    static const std::vector<HistoryPoint> none;
    const auto found = points_.find(key_of(process));
    return found == points_.end() ? none : found->second;
}

}  // namespace memlab::tools
