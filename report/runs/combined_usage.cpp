#include "report/runs/combined_usage.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "model/bounded_sum.hpp"

namespace memlab::report {

namespace {

/// From `begin_ns` on the process holds between `min` and `max` bytes.
struct Bounds {
    std::uint64_t begin_ns = 0;
    std::size_t process = 0;
    std::uint64_t min = 0;
    std::uint64_t max = 0;
};

/// State of a process in the sweep. It reaches its `max` at some time between two of its changes;
/// throughout that time the others hold `min_others` or more.
struct SweepState {
    std::uint64_t min = 0;
    std::uint64_t max = 0;
    bool counted = false;
    std::uint64_t min_others = std::numeric_limits<std::uint64_t>::max();
};

/// Appends the changes of one process. After its end it holds nothing; if it still runs, its last
/// value.
void add_changes(const RunMember& member, const model::Device& device, model::Curve curve,
                 std::size_t process, std::vector<Bounds>& out) {
    const std::uint64_t start = member.report.process.start_wall_ns;
    std::uint64_t last = 0;
    std::uint64_t bucket_end = start;
    std::uint64_t last_begin = start;
    for (const model::TimelineRow& row : device.timeline.rows) {
        const auto values = row.curves.at(static_cast<std::size_t>(curve));
        if (!values) {
            continue;
        }
        const std::uint64_t begin = model::saturating_add(start, row.begin_ns);
        if (begin > bucket_end) {
            out.push_back({bucket_end, process, last, last});
        }
        out.push_back({begin, process, values->min, values->max});
        last_begin = begin;
        bucket_end = model::saturating_add(begin, device.timeline.bucket_ns);
        last = values->last;
    }
    // The last bucket may extend beyond the end.
    const std::uint64_t end =
        std::max(last_begin, model::saturating_add(start, member.report.process.duration_ns));
    if (member.running) {
        out.push_back({bucket_end, process, last, last});
        return;
    }
    if (end > bucket_end) {
        out.push_back({bucket_end, process, last, last});
    }
    out.push_back({end, process, 0, 0});
}

CombinedPeak combined_peak(const RunCollection& run,
                           const std::vector<std::pair<std::size_t, const model::Device*>>& uses,
                           model::Curve curve) {
    CombinedPeak peak;
    std::vector<Bounds> changes;
    for (std::size_t i = 0; i < uses.size(); ++i) {
        const auto& [member, device] = uses[i];
        peak.sum = model::saturating_add(peak.sum, device->curve(curve).peak_bytes);
        add_changes(run.members[member], *device, curve, i, changes);
    }
    std::stable_sort(changes.begin(), changes.end(),
                     [](const Bounds& a, const Bounds& b) { return a.begin_ns < b.begin_ns; });
    std::vector<SweepState> states(uses.size());
    const auto close = [&](SweepState& state) {
        if (state.counted) {
            peak.at_least =
                std::max(peak.at_least, model::saturating_add(state.max, state.min_others));
        }
    };
    for (std::size_t i = 0; i < changes.size();) {
        // Memory that one process frees may be allocated by another at the same nanosecond: apply
        // all changes of a time before evaluating it.
        const std::uint64_t at = changes[i].begin_ns;
        for (; i < changes.size() && changes[i].begin_ns == at; ++i) {
            SweepState& state = states[changes[i].process];
            close(state);
            state = SweepState{.min = changes[i].min, .max = changes[i].max};
        }
        std::uint64_t all_max = 0;
        std::uint64_t all_min = 0;
        for (const SweepState& state : states) {
            all_max = model::saturating_add(all_max, state.max);
            all_min = model::saturating_add(all_min, state.min);
        }
        for (SweepState& state : states) {
            state.counted = true;
            state.min_others = std::min(state.min_others, all_min - state.min);
        }
        if (all_max > peak.at_most) {
            peak.at_most = all_max;
            peak.at_wall_ns = at;
        }
    }
    std::for_each(states.begin(), states.end(), close);
    // A recording without a timeline still has a peak.
    for (const auto& [member, device] : uses) {
        peak.at_least = std::max(peak.at_least, device->curve(curve).peak_bytes);
    }
    peak.at_most = std::max(peak.at_most, peak.at_least);
    return peak;
}

bool was_used(const model::Device& device) {
    return device.curve(model::Curve::reserved).peak_bytes != 0 ||
           device.curve(model::Curve::allocated).peak_bytes != 0;
}

}  // namespace

std::vector<GpuUsage> combined_gpu_usage(const RunCollection& run) {
    std::vector<GpuUsage> gpus;
    std::vector<std::vector<std::pair<std::size_t, const model::Device*>>> uses;
    std::map<std::string, std::size_t> known;
    for (std::size_t i = 0; i < run.members.size(); ++i) {
        const model::Report& report = run.members[i].report;
        for (const model::Device& device : report.devices) {
            if (!was_used(device) || !device.is_gpu()) {
                continue;
            }
            const std::string key = device.uuid.empty()
                                        ? report.process.host + "/" + std::to_string(device.index)
                                        : device.uuid;
            const auto [entry, is_new] = known.try_emplace(key, gpus.size());
            if (is_new) {
                GpuUsage gpu;
                gpu.uuid = device.uuid;
                gpu.name = device.name;
                gpu.total_bytes = device.total_bytes;
                gpus.push_back(std::move(gpu));
                uses.emplace_back();
            }
            GpuUsage& gpu = gpus[entry->second];
            gpu.members.push_back(i);
            gpu.devices.push_back(device.index);
            uses[entry->second].emplace_back(i, &device);
            const std::string& host = report.process.host;
            if (std::find(gpu.hosts.begin(), gpu.hosts.end(), host) == gpu.hosts.end()) {
                gpu.hosts.push_back(host);
            }
        }
    }
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        gpus[i].allocated = combined_peak(run, uses[i], model::Curve::allocated);
        gpus[i].reserved = combined_peak(run, uses[i], model::Curve::reserved);
    }
    return gpus;
}

}  // namespace memlab::report
