#include "report/inefficiencies/watch.hpp"

#include <algorithm>
#include <unordered_map>

#include "report/inefficiencies/busy_times.hpp"
#include "report/read_ahead.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

using trace::CurveName;
using trace::EventType;

/// What a thread allocated last.
struct Latest {
    std::uint64_t event = 0;
    std::uint64_t serial = 0;
    std::uint64_t size = 0;
    std::uint32_t site = 0;
};

/// Whether the recording has every kernel, copy and fill.
bool all_work_recorded(const Report& report) {
    return !report.process.started_late && report.coverage.lost_records == 0 &&
           std::any_of(report.devices.begin(), report.devices.end(),
                       [](const Device& device) { return device.work.has_value(); });
}

class Watcher final : public trace::EveryRecord<Watcher> {
  public:
    Watcher(const Report& report, std::optional<std::size_t> steps)
        : report_(report),
          steps_(steps),
          work_recorded_(all_work_recorded(report)),
          peak_seen_(report.devices.size()) {
        watched_.sites.resize(report.sites.size());
        watched_.growth.resize(report.devices.size());
    }

    template <typename Record>
    void take(const Record& record) {
        figures_.on(record);
    }
    void take(const trace::Work& work) {
        figures_.on(work);
        busy_.add(work.start_ns, std::max(work.start_ns, work.end_ns));
    }
    void take(const trace::Event& event) {
        switch (event.type) {
            case EventType::alloc:
                before_growth(event);
                figures_.on(event);
                allocated(event);
                break;
            case EventType::segment_alloc:
            case EventType::segment_map:
                before_growth(event);
                figures_.on(event);
                break;
            case EventType::free_requested:
            case EventType::free_completed:
                freed(event);
                figures_.on(event);
                break;
            case EventType::mark:
            case EventType::scope_end:
                figures_.on(event);
                step();
                break;
            default:
                figures_.on(event);
                break;
        }
        ++number_;
    }

    Watched finish() {
        never_freed();
        never_used();
        watched_.steps = step_ends_.size();
        return std::move(watched_);
    }

  private:
    /// Freed before any work was known of that ran while it lived.
    struct Idle {
        std::uint64_t made_ns = 0;
        std::uint64_t freed_ns = 0;
        Avoidable life;
    };

    const trace::Live* find(const trace::Event& event, std::uint32_t* place) const {
        *place = figures_.live().find(event.address, trace::space_of(event.kind));
        return *place == trace::LiveTable::none ? nullptr : &figures_.live()[*place];
    }

    void allocated(const trace::Event& event) {
        std::uint32_t place = 0;
        const trace::Live* const live = find(event, &place);
        if (live == nullptr || live->site >= watched_.sites.size()) {
            return;  // the log of a program that still runs has grown since
        }
        if (place >= step_made_.size()) {
            step_made_.resize(std::max<std::size_t>(place + std::size_t{1}, 2 * step_made_.size()));
            made_.resize(step_made_.size());
        }
        step_made_[place] = static_cast<std::uint32_t>(step_ends_.size());
        made_[place] = number_;
        SiteWatch& site = watched_.sites[live->site];
        site.most_live = std::max(site.most_live, figures_.sites()[live->site].live_count);
        site.largest = std::max(site.largest, live->size);
        latest_[live->thread] = {number_, live->serial, live->size, live->site};
        at_peak(event.device);
    }

    void freed(const trace::Event& event) {
        std::uint32_t place = 0;
        const trace::Live* const live = find(event, &place);
        if (live == nullptr || live->pending || live->site >= watched_.sites.size() ||
            !trace::counts_as_device_memory(figures_.sites()[live->site].kind)) {
            return;
        }
        SiteWatch& site = watched_.sites[live->site];
        const auto latest = latest_.find(event.thread);
        if (latest != latest_.end() && latest->second.site == live->site &&
            latest->second.size == live->size && latest->second.serial > live->serial) {
            ++site.replaced_count;
            site.replaced_bytes += live->size;
            keep(latest->second.event, live->size, live->site, Avoidable::Why::replaced);
        }
        const std::uint32_t made = step_made_[place];
        if (made < step_ends_.size()) {
            ++site.outlived_count;
            site.outlived_bytes += live->size;
            site.outlived_steps += step_ends_.size() - made;
            keep(step_ends_[made], live->size, live->site, Avoidable::Why::outlived);
        }
        if (work_recorded_ && idle_.size() < max_avoidable &&
            !busy_.any_in(live->time_ns, event.time_ns)) {
            idle_.push_back(
                {live->time_ns,
                 event.time_ns,
                 {made_[place], number_, live->size, live->site, Avoidable::Why::unused}});
        }
    }

    /// Work is told late, so only now all of it is known.
    void never_used() {
        for (const Idle& idle : idle_) {
            if (busy_.any_in(idle.made_ns, idle.freed_ns)) {
                continue;
            }
            SiteWatch& site = watched_.sites[idle.life.site];
            ++site.unused_count;
            site.unused_bytes += idle.life.bytes;
            if (watched_.avoidable.size() < max_avoidable) {
                watched_.avoidable.push_back(idle.life);
            } else {
                ++watched_.left_out;
            }
        }
    }

    /// Until the event that comes now.
    void keep(std::uint64_t begin, std::uint64_t bytes, std::uint32_t site, Avoidable::Why why) {
        if (watched_.avoidable.size() == max_avoidable) {
            ++watched_.left_out;
            return;
        }
        watched_.avoidable.push_back({begin, number_, bytes, site, why});
    }

    void step() {
        if (!steps_) {
            return;
        }
        // The first end of a kind is known to be one when the second comes.
        const std::uint64_t ended = figures_.steps_ended(*steps_);
        while (step_ends_.size() < ended) {
            step_ends_.push_back(number_);
        }
    }

    /// What the end found: avoidable from the end of its step on.
    void never_freed() {
        figures_.live().for_each([&](std::uint32_t place, const trace::Live& live) {
            if (live.pending || live.site >= watched_.sites.size() ||
                !trace::counts_as_device_memory(figures_.sites()[live.site].kind)) {
                return;
            }
            const trace::Lifetimes& others = figures_.sites()[live.site].lifetimes;
            if (!others.empty() && figures_.duration_ns() - live.time_ns > 2 * others.max()) {
                ++watched_.sites[live.site].outstayed_count;
                watched_.sites[live.site].outstayed_bytes += live.size;
            }
            if (step_made_[place] < step_ends_.size()) {
                keep(step_ends_[step_made_[place]], live.size, live.site, Avoidable::Why::leaked);
            }
        });
    }

    const Device* device_of(std::uint32_t index, std::size_t* at) const {
        const auto found =
            std::find_if(report_.devices.begin(), report_.devices.end(),
                         [index](const Device& device) { return device.index == index; });
        *at = static_cast<std::size_t>(found - report_.devices.begin());
        return found == report_.devices.end() ? nullptr : &*found;
    }

    /// Whether the event takes the reserved curve to its peak for the first time.
    void before_growth(const trace::Event& event) {
        std::size_t at = 0;
        const Device* const device = device_of(event.device, &at);
        if (device == nullptr || watched_.growth[at].time_ns != 0 ||
            (event.type == EventType::alloc && event.origin == trace::Origin::pool)) {
            return;
        }
        const std::uint64_t peak = device->curve(Curve::reserved).peak_bytes;
        const std::uint64_t now =
            figures_.devices()[event.device]->curve(CurveName::reserved).current;
        const std::uint64_t more = event.size == 0 ? event.requested : event.size;
        if (peak != 0 && now < peak && now + more >= peak) {
            watched_.growth[at] = {event.time_ns, lay_out(figures_, event.device)};
        }
    }

    /// Looks at the rounding when the allocated curve first comes to its peak.
    void at_peak(std::uint32_t index) {
        std::size_t at = 0;
        const Device* const device = device_of(index, &at);
        if (device == nullptr || peak_seen_[at] ||
            figures_.devices()[index]->curve(CurveName::allocated).current !=
                device->curve(Curve::allocated).peak_bytes) {
            return;
        }
        peak_seen_[at] = true;
        figures_.live().for_each([&](std::uint32_t, const trace::Live& live) {
            const trace::Site& site = figures_.sites()[live.site];
            if (!live.pending && live.size > live.requested && live.site < watched_.sites.size() &&
                site.device == index && trace::counts_as_device_memory(site.kind)) {
                watched_.sites[live.site].rounding_at_peak += live.size - live.requested;
                ++watched_.sites[live.site].count_at_peak;
            }
        });
    }

    const Report& report_;
    const std::optional<std::size_t> steps_;
    const bool work_recorded_;
    trace::Aggregator figures_;
    Watched watched_;
    std::uint64_t number_ = 0;              ///< of the event that comes now
    std::vector<std::uint64_t> step_ends_;  ///< numbers of the events that ended them
    std::vector<std::uint32_t> step_made_;  ///< by place in the live table
    std::vector<std::uint64_t> made_;       ///< numbers of the events that made them, likewise
    std::vector<bool> peak_seen_;           ///< by device
    BusyTimes busy_;                        ///< of all GPUs: they reach each other's memory
    std::vector<Idle> idle_;
    std::unordered_map<std::uint32_t, Latest> latest_;  ///< by thread
};

}  // namespace

Watched watch(const Report& report, const std::string& log, std::optional<std::size_t> steps) {
    Watcher watcher(report, steps);
    read_log_ahead(log, watcher);
    return watcher.finish();
}

}  // namespace memlab::report
