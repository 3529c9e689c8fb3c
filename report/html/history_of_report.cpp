// The history that a report holds without its event log: sums, no moments in between.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/html/history.hpp"
#include "report/lacks.hpp"
#include "report/views/site_stats.hpp"

namespace memlab::report {

namespace {

constexpr std::uint64_t most_blocks = std::numeric_limits<std::uint32_t>::max();

History::Change change(std::size_t moment, std::uint64_t blocks, std::uint64_t bytes) {
    return {static_cast<std::uint32_t>(moment),
            static_cast<std::uint32_t>(std::min(blocks, most_blocks)), bytes};
}

void add_curves(History& history, const model::Device& device, std::uint64_t end_ns,
                std::size_t most_buckets) {
    History::Curves& curves = history.curves.emplace_back();
    curves.device = &device;
    // The rows' own width, unless a damaged report has more of them than there can be.
    const model::Timeline& timeline = device.timeline;
    curves.bucket_ns = std::max(timeline.bucket_ns, end_ns / most_buckets + 1);
    History::Bucket::Values now{};
    now.back() = model::TimelineRow::unknown;
    curves.buckets.assign(static_cast<std::size_t>(end_ns / curves.bucket_ns) + 1, {now, now, now});
    std::size_t at = 0;
    const auto continue_to = [&](std::size_t bucket) {
        while (at < bucket) {
            curves.buckets[++at] = {now, now, now};
        }
    };
    for (const model::TimelineRow& row : timeline.rows) {
        continue_to(std::min<std::size_t>(static_cast<std::size_t>(row.begin_ns / curves.bucket_ns),
                                          curves.buckets.size() - 1));
        History::Bucket& bucket = curves.buckets[at];
        for (std::size_t i = 0; i < model::curve_count; ++i) {
            if (const auto& values = row.curves[i]) {
                bucket.min[i] = std::min(bucket.min[i], values->min);
                bucket.max[i] = std::max(bucket.max[i] + 1, values->max + 1) - 1;
                bucket.last[i] = now[i] = values->last;
            }
        }
    }
    continue_to(curves.buckets.size() - 1);
}

/// A peak of a device, or of a kind of its memory that has one of its own.
struct KnownPeak {
    ViewedMemory memory;
    std::uint64_t time_ns = 0;
    std::uint64_t bytes = 0;
};

void add_peaks(const model::Device& device, std::uint64_t end_ns, std::vector<KnownPeak>& peaks) {
    const auto add = [&](ViewedMemory memory, const model::CurveSummary& curve) {
        if (curve.peak_bytes != 0) {
            peaks.push_back(
                {std::move(memory), std::min(curve.peak_time_ns, end_ns), curve.peak_bytes});
        }
    };
    add(ViewedMemory(device), device.curve(model::Curve::allocated));
    if (device.kind_curves) {
        for (const auto& [kind, curve] : *device.kind_curves) {
            add(ViewedMemory(device, kind), curve.curve);
        }
    }
}

/// What was held of a site, or of a part of it.
struct Figures {
    struct Held {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;

        void add(std::uint64_t more_count, std::uint64_t more_bytes) {
            model::add_to(count, more_count);
            model::add_to(bytes, more_bytes);
        }
        /// Takes up to this from `whole`: the figures of a file are not trusted to add up.
        void limit_to(Held& whole) {
            count = std::min(count, whole.count);
            bytes = std::min(bytes, whole.bytes);
            whole.count -= count;
            whole.bytes -= bytes;
        }
    };
    Held at_peak;
    Held live;

    Figures() = default;
    explicit Figures(const model::Site& site)
        : at_peak{site.at_peak_count, site.at_peak_bytes}, live{site.live_count, site.live_bytes} {}
    void add(const model::NnModuleStack::Holding& held) {
        at_peak.add(held.at_peak_count, held.at_peak_bytes);
        live.add(held.live_count, held.live_bytes);
    }
    void limit_to(Figures& whole) {
        at_peak.limit_to(whole.at_peak);
        live.limit_to(whole.live);
    }
};

/// `at_peak(memory)`: what it held at the peak of that.
template <typename AtPeak>
void add_holder(History& history, const History::Followed& followed,
                const std::vector<KnownPeak>& peaks, const model::Site& site, const AtPeak& at_peak,
                const Figures::Held& live) {
    history.sites.push_back(followed);
    std::vector<History::Change>& changes = history.holders.emplace_back().changes;
    for (std::size_t p = 0; p < peaks.size(); ++p) {
        if (peaks[p].memory.has(site)) {
            const Figures::Held held = at_peak(peaks[p].memory);
            changes.push_back(change(p, held.count, held.bytes));
        }
    }
    changes.push_back(change(peaks.size(), live.count, live.bytes));
}

}  // namespace

void fill_curves(History& history, std::uint64_t from_ns, std::uint64_t to_ns) {
    for (History::Curves& curves : history.curves) {
        const model::Timeline& timeline = curves.device->timeline;
        std::vector<bool> filled(curves.buckets.size());
        for (const model::TimelineRow& row : timeline.rows) {
            std::uint64_t end_ns = 0;
            if (__builtin_add_overflow(row.begin_ns, timeline.bucket_ns, &end_ns)) {
                end_ns = std::numeric_limits<std::uint64_t>::max();
            }
            const std::uint64_t first_ns = std::max(row.begin_ns, from_ns + 1);
            const std::uint64_t last_ns = std::min(end_ns, to_ns);
            if (first_ns >= last_ns) {
                continue;
            }
            curves.exact = false;
            const std::size_t last =
                std::min<std::size_t>(static_cast<std::size_t>((last_ns - 1) / curves.bucket_ns),
                                      curves.buckets.size() - 1);
            for (auto at = static_cast<std::size_t>(first_ns / curves.bucket_ns); at <= last;
                 ++at) {
                History::Bucket& bucket = curves.buckets[at];
                // What stands in one that lies wholly in the gap is the value before it.
                const bool replaced = !filled[at] && at * curves.bucket_ns > from_ns &&
                                      (at + 1) * curves.bucket_ns <= to_ns;
                filled[at] = true;
                for (std::size_t i = 0; i < model::curve_count; ++i) {
                    if (const auto& values = row.curves[i]) {
                        if (replaced) {
                            bucket.min[i] = values->min;
                            bucket.max[i] = values->max;
                        }
                        bucket.min[i] = std::min(bucket.min[i], values->min);
                        bucket.max[i] = std::max(bucket.max[i] + 1, values->max + 1) - 1;
                        bucket.last[i] = values->last;
                    }
                }
            }
        }
    }
}

History history_of_report(const model::Report& report, const SiteCategories& categories,
                          const HistoryLimits& limits) {
    History history;
    const std::uint64_t end_ns = known_until(report).value_or(report.process.duration_ns);
    std::vector<const model::Device*> devices;
    for (const model::Device& device : report.devices) {
        if (device.used()) {
            devices.push_back(&device);
            add_curves(history, device, end_ns, limits.buckets);
        }
    }
    std::vector<KnownPeak> peaks;
    for (const model::Device* device : devices) {
        add_peaks(*device, end_ns, peaks);
    }
    std::stable_sort(peaks.begin(), peaks.end(),
                     [](const KnownPeak& a, const KnownPeak& b) { return a.time_ns < b.time_ns; });
    for (const KnownPeak& peak : peaks) {
        if (peak.memory.kind().empty()) {
            history.events.push_back({History::What::peak,
                                      peak.time_ns,
                                      history.moments.size(),
                                      peak.memory.device().index,
                                      peak.bytes,
                                      {}});
        }
        history.moments.push_back(peak.time_ns);
    }
    const std::size_t peak_events = history.events.size();
    history.moments.push_back(end_ns);
    history.nn_modules = page_nn_modules(report);
    std::vector<std::map<std::size_t, Figures>> parts(report.sites.size());  // by nn.Module
    for (std::size_t stack = 0; stack < report.nn_modules.size(); ++stack) {
        for (const model::NnModuleStack::Holding& held : report.nn_modules[stack].sites) {
            parts[held.site][history.nn_modules.of_stack[stack]].add(held);
        }
    }
    std::vector<std::size_t> order(report.sites.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return report.sites[a].peak_bytes > report.sites[b].peak_bytes;
    });
    for (const std::size_t i : order) {
        const model::Site& site = report.sites[i];
        const auto on = [&](const model::Device* device) { return device->index == site.device; };
        if (std::none_of(devices.begin(), devices.end(), on)) {
            continue;
        }
        Figures own(site);
        for (auto& [module, part] : parts[i]) {
            part.limit_to(own);
            add_holder(
                history, {i, module}, peaks, site,
                [&part = part](const ViewedMemory& memory) {
                    return memory.kind().empty() ? part.at_peak : Figures::Held{};
                },
                part.live);
        }
        add_holder(
            history, {i, std::nullopt}, peaks, site,
            [&](const ViewedMemory& memory) {
                if (memory.kind().empty()) {
                    return own.at_peak;
                }
                const SiteStats stats = memory.stats(site, i);
                return Figures::Held{stats.peak_count, stats.peak_bytes};
            },
            own.live);
    }
    for (const model::Mark& mark : report.marks) {
        if (mark.type == "mark" && history.events.size() < limits.marks + peak_events) {
            history.events.push_back(
                {History::What::mark, mark.time_ns, std::nullopt, 0, 0, mark.name});
        }
    }
    for (const model::Oom& oom : report.ooms) {
        history.events.push_back({History::What::oom, oom.time_ns, std::nullopt, oom.device,
                                  oom.requested_bytes, oom.api});
    }
    history.events.push_back({History::What::end, end_ns, peaks.size(), 0, 0, {}});
    std::stable_sort(history.events.begin(), history.events.end(),
                     [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
    limit_changes(history, report, categories, 2 * (limits.sites + limits.parts));
    return history;
}

}  // namespace memlab::report
