#include "report/runs/combined_usage.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "trace/json/bounded_sum.hpp"

namespace memlab::report {

namespace {

/// From `begin_ns` on the process holds between `min` and `max`.
struct Change {
    std::uint64_t begin_ns = 0;
    std::size_t process = 0;
    std::uint64_t min = 0;
    std::uint64_t max = 0;
};

/// Where a process is in the sweep. It is at its `max` somewhere between two of its changes, and
/// the others hold what they hold at least in all that time.
struct Now {
    std::uint64_t min = 0;
    std::uint64_t max = 0;
    bool seen = false;
    std::uint64_t least_others = std::numeric_limits<std::uint64_t>::max();
};

/// One process's share as changes in time. After its end it holds nothing; one that runs holds on.
void add_changes(const RunMember& member, const Device& device, Curve curve, std::size_t process,
                 std::vector<Change>& out) {
    const std::uint64_t start = member.report.process.start_wall_ns;
    std::uint64_t last = 0;
    std::uint64_t held_until = start;
    std::uint64_t latest = start;
    for (const TimelineRow& row : device.timeline.rows) {
        const auto values = row.curves.at(static_cast<std::size_t>(curve));
        if (!values) {
            continue;
        }
        const std::uint64_t begin = bounded_add(start, row.begin_ns);
        if (begin > held_until) {
            out.push_back({held_until, process, last, last});
        }
        out.push_back({begin, process, values->min, values->max});
        latest = begin;
        held_until = bounded_add(begin, device.timeline.bucket_ns);
        last = values->last;
    }
    // The last bucket may reach beyond the end.
    const std::uint64_t end =
        std::max(latest, bounded_add(start, member.report.process.duration_ns));
    if (member.running) {
        out.push_back({held_until, process, last, last});
        return;
    }
    if (end > held_until) {
        out.push_back({held_until, process, last, last});
    }
    out.push_back({end, process, 0, 0});
}

TogetherPeak peak_of(const RunCollection& run,
                     const std::vector<std::pair<std::size_t, const Device*>>& uses, Curve curve) {
    TogetherPeak peak;
    std::vector<Change> changes;
    for (std::size_t i = 0; i < uses.size(); ++i) {
        const auto& [member, device] = uses[i];
        peak.sum = bounded_add(peak.sum, device->curve(curve).peak_bytes);
        add_changes(run.members[member], *device, curve, i, changes);
    }
    std::stable_sort(changes.begin(), changes.end(),
                     [](const Change& a, const Change& b) { return a.begin_ns < b.begin_ns; });
    std::vector<Now> now(uses.size());
    const auto close = [&](Now& one) {
        if (one.seen) {
            peak.at_least = std::max(peak.at_least, bounded_add(one.max, one.least_others));
        }
    };
    for (std::size_t i = 0; i < changes.size();) {
        // What one process gives back at a moment another may take at the same one: both changes of
        // that moment count before it is looked at.
        const std::uint64_t at = changes[i].begin_ns;
        for (; i < changes.size() && changes[i].begin_ns == at; ++i) {
            Now& one = now[changes[i].process];
            close(one);
            one = Now{.min = changes[i].min, .max = changes[i].max};
        }
        std::uint64_t all_max = 0;
        std::uint64_t all_min = 0;
        for (const Now& one : now) {
            all_max = bounded_add(all_max, one.max);
            all_min = bounded_add(all_min, one.min);
        }
        for (Now& one : now) {
            one.seen = true;
            one.least_others = std::min(one.least_others, all_min - one.min);
        }
        if (all_max > peak.at_most) {
            peak.at_most = all_max;
            peak.at_wall_ns = at;
        }
    }
    std::for_each(now.begin(), now.end(), close);
    // A recording without a timeline still has its peak.
    for (const auto& [member, device] : uses) {
        peak.at_least = std::max(peak.at_least, device->curve(curve).peak_bytes);
    }
    peak.at_most = std::max(peak.at_most, peak.at_least);
    return peak;
}

bool was_used(const Device& device) {
    return device.curve(Curve::reserved).peak_bytes != 0 ||
           device.curve(Curve::allocated).peak_bytes != 0;
}

}  // namespace

std::vector<GpuTogether> gpus_together(const RunCollection& run) {
    std::vector<GpuTogether> gpus;
    std::vector<std::vector<std::pair<std::size_t, const Device*>>> uses;
    std::map<std::string, std::size_t> known;
    for (std::size_t i = 0; i < run.members.size(); ++i) {
        const Report& report = run.members[i].report;
        for (const Device& device : report.devices) {
            if (!was_used(device)) {
                continue;
            }
            const std::string key = device.uuid.empty()
                                        ? report.process.host + "/" + std::to_string(device.index)
                                        : device.uuid;
            const auto [entry, is_new] = known.try_emplace(key, gpus.size());
            if (is_new) {
                GpuTogether gpu;
                gpu.uuid = device.uuid;
                gpu.name = device.name;
                gpu.total_bytes = device.total_bytes;
                gpus.push_back(std::move(gpu));
                uses.emplace_back();
            }
            GpuTogether& gpu = gpus[entry->second];
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
        gpus[i].allocated = peak_of(run, uses[i], Curve::allocated);
        gpus[i].reserved = peak_of(run, uses[i], Curve::reserved);
    }
    return gpus;
}

}  // namespace memlab::report
