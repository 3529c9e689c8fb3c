#include "report/inefficiencies/collect_patterns.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "model/bounded_sum.hpp"
#include "report/inefficiencies/busy_times.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/steps.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

using trace::CurveName;
using trace::EventType;

/// The latest allocation of a thread.
struct Latest {
    std::uint64_t event = 0;
    std::uint64_t serial = 0;
    std::uint64_t size = 0;
    std::uint32_t site = 0;
    std::uint32_t slot = 0;
    /// The thread's allocation before it; 0: it was of another site or size.
    std::uint64_t previous_serial = 0;
    bool is_last_event = true;  ///< the thread has neither allocated nor freed since
};

/// Blocks each of which was freed right after its successor had been made, up to a live one.
struct ReplacedChain {
    static constexpr std::size_t min_length = 3;  ///< two buffers used together make pairs, too
    std::size_t length = 0;
    std::array<AvoidableSpan, min_length - 1> first;
};

/// The highest value of a curve since any of its events. O(log n), and O(1) amortized to add.
class RecentPeaks {
  public:
    void add(std::uint64_t number, std::uint64_t value) {
        while (!falling_.empty() && falling_.back().value <= value) {
            falling_.pop_back();
        }
        falling_.push_back({number, value});
    }
    /// From event `since` on; 0: there was none.
    std::uint64_t most_since(std::uint64_t since) const {
        const auto first = std::lower_bound(
            falling_.begin(), falling_.end(), since,
            [](const Peak& peak, std::uint64_t number) { return peak.number < number; });
        return first == falling_.end() ? 0 : first->value;
    }

  private:
    struct Peak {
        std::uint64_t number = 0;
        std::uint64_t value = 0;
    };
    std::vector<Peak> falling_;  ///< by number; each is lower than the one before it
};

class PatternCollector final : public trace::GenericSink<PatternCollector>,
                               private trace::LiveObserver {
  public:
    PatternCollector(const model::Report& report, const model::Steps* steps,
                     const std::vector<std::uint32_t>& groups)
        : report_(report),
          work_recorded_(all_work_recorded(report)),
          peak_seen_(report.devices.size()),
          groups_(groups) {
        patterns_.sites.resize(report.sites.size());
        group_.resize(groups.empty() ? 0 : *std::max_element(groups.begin(), groups.end()) + 1);
        patterns_.peaks_without.resize(group_.size());
        has_rounding_.resize(report.sites.size());
        // What may count: places that held the smallest share of the peak that is told, or more.
        std::vector<std::uint64_t> held(group_.size());
        for (std::size_t i = 0; i < report.sites.size(); ++i) {
            model::add_to(held[groups[i]], report.sites[i].peak_bytes);
        }
        for (std::size_t i = 0; i < report.sites.size(); ++i) {
            has_rounding_[i] = report.sites[i].bytes > report.sites[i].requested_bytes &&
                               held[groups[i]] >= least_rounding(report, i);
        }
        patterns_.growth.resize(report.devices.size());
        if (steps != nullptr) {
            steps_.emplace(*steps);
            if (steps->anchor) {
                figures_.end_steps_at(*steps->anchor);
                steps_are_found_ = true;
            }
        }
        figures_.set_observer(this);
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
        if (event.type == EventType::alloc || event.type == EventType::segment_alloc ||
            event.type == EventType::segment_map) {
            snapshot_before_peak(event);
        }
        figures_.on(event);
        if (event.type == EventType::mark || event.type == EventType::scope_end ||
            steps_are_found_) {
            step();
        }
        ++number_;
    }

    /// `whole`: the records end with the recording.
    CollectedPatterns finish(bool whole) {
        if (whole) {
            collect_leaks();
        }
        collect_unused();
        for (std::size_t i = 0; i < patterns_.sites.size() && i < figures_.sites().size(); ++i) {
            note_others(static_cast<std::uint32_t>(i), figures_.sites()[i].device, 0, 0);
        }
        patterns_.steps = step_ends_.size();
        return std::move(patterns_);
    }

  private:
    /// Freed, and no work during its lifetime was known then.
    struct Idle {
        std::uint64_t made_ns = 0;
        std::uint64_t freed_ns = 0;
        AvoidableSpan life;
    };

    /// Device memory that the program decides on. The segments of a framework's cache are the
    /// cache's to free; what it handed out of them has findings of its own.
    bool is_the_programs(const trace::Live& live) const {
        return !live.pending && !live.is_segment && live.site < patterns_.sites.size() &&
               trace::counts_as_device_memory(figures_.sites()[live.site].kind);
    }

    void allocated(std::uint32_t slot, const trace::Live& live, const trace::Event& by) override {
        const std::uint64_t in_all =
            figures_.devices()[by.device]->curve(CurveName::allocated).current;
        patterns_.allocated.add(number_, by.device, in_all);
        if (live.site < patterns_.sites.size()) {
            note_others(live.site, by.device, live.size, 0);
        }
        peaks_[by.device].add(number_, in_all);
        if (live.site >= patterns_.sites.size()) {
            return;  // the log of a running program has grown since the report
        }
        if (slot >= step_made_.size()) {
            step_made_.resize(std::max<std::size_t>(slot + std::size_t{1}, 2 * step_made_.size()));
            made_.resize(step_made_.size());
        }
        step_made_[slot] = static_cast<std::uint32_t>(step_ends_.size());
        made_[slot] = number_;
        SitePatterns& site = patterns_.sites[live.site];
        site.max_live = std::max(site.max_live, figures_.sites()[live.site].live_count);
        site.max_live_bytes = std::max(site.max_live_bytes, figures_.sites()[live.site].live_bytes);
        site.max_size = std::max(site.max_size, live.size);
        replaced_.erase(slot);
        Latest& latest = latest_[live.thread];
        const bool alike = latest.site == live.site && latest.size == live.size;
        latest = {number_, live.serial, live.size, live.site, slot, alike ? latest.serial : 0};
        collect_rounding(by.device);
    }

    void freed(std::uint32_t slot, const trace::Live& live, const trace::LifeEnd& end) override {
        if (live.site < patterns_.sites.size()) {
            note_others(live.site, figures_.sites()[live.site].device, 0, live.size);
        }
        if (end.cause != trace::LifeEnd::Cause::freed || !is_the_programs(live)) {
            return;
        }
        SitePatterns& site = patterns_.sites[live.site];
        if (end.event->name != 0) {
            add_span(made_[slot], live.size, live.site, AvoidableSpan::Reason::collected);
        }
        if (has_rounding_[live.site] && live.size > live.requested) {
            add_span(made_[slot], live.size - live.requested, live.site,
                     AvoidableSpan::Reason::rounding);
        }
        const auto latest = latest_.find(end.event->thread);
        if (latest != latest_.end()) {
            if (latest->second.is_last_event && latest->second.previous_serial == live.serial &&
                live.serial != 0) {
                replaced(live, slot, latest->second);
            }
            latest->second.is_last_event = false;
        }
        const std::uint32_t made = step_made_[slot];
        if (made < step_ends_.size()) {
            ++site.outlived_count;
            site.outlived_bytes += live.size;
            site.outlived_steps += step_ends_.size() - made;
            add_span(step_ends_[made], live.size, live.site, AvoidableSpan::Reason::outlived);
        }
        if (work_recorded_ && idle_.size() < max_avoidable &&
            !busy_.any_in(live.time_ns, figures_.duration_ns())) {
            idle_.push_back(
                {live.time_ns,
                 figures_.duration_ns(),
                 {made_[slot], number_, live.size, live.site, AvoidableSpan::Reason::unused}});
        }
    }

    /// A site smaller than this has too little rounding to be told of.
    static std::uint64_t least_rounding(const model::Report& report, std::size_t site) {
        for (const model::Device& device : report.devices) {
            if (device.index == report.sites[site].device) {
                return device.curve(model::Curve::allocated).peak_bytes / 100;
            }
        }
        return 0;
    }

    /// What others held beside a site's group at most since the group's last event; then the group
    /// holds `more`, or `less`.
    void note_others(std::uint32_t site, std::uint32_t device, std::uint64_t more,
                     std::uint64_t less) {
        const std::uint32_t index = groups_[site];
        Group& group = group_[index];
        const auto peaks = peaks_.find(device);
        if (peaks != peaks_.end()) {
            const std::uint64_t most = peaks->second.most_since(group.since);
            std::uint64_t& without = patterns_.peaks_without[index];
            without = std::max(without, most - std::min(most, group.held));
        }
        group.since = number_;
        group.held += more;
        group.held -= std::min(group.held, less);
    }

    /// The block was freed right after the next one of its site and size had been made. Counted
    /// once it happens again and again: buffers that are made together and freed together look
    /// alike at first.
    void replaced(const trace::Live& old, std::uint32_t slot, const Latest& next) {
        ReplacedChain chain;
        if (const auto before = replaced_.find(slot); before != replaced_.end()) {
            chain = before->second;
        }
        const AvoidableSpan span{next.event, number_, old.size, old.site,
                                 AvoidableSpan::Reason::replaced};
        ++chain.length;
        if (chain.length < ReplacedChain::min_length) {
            chain.first[chain.length - 1] = span;
        } else {
            if (chain.length == ReplacedChain::min_length) {
                for (const AvoidableSpan& each : chain.first) {
                    count_replaced(each);
                }
            }
            count_replaced(span);
        }
        replaced_[next.slot] = chain;
    }

    void count_replaced(const AvoidableSpan& span) {
        ++patterns_.sites[span.site].replaced_count;
        patterns_.sites[span.site].replaced_bytes += span.bytes;
        add(span);
    }

    /// Work is recorded late: only at the end of the log is all of it known.
    void collect_unused() {
        for (const Idle& idle : idle_) {
            if (busy_.any_in(idle.made_ns, idle.freed_ns)) {
                continue;
            }
            SitePatterns& site = patterns_.sites[idle.life.site];
            ++site.unused_count;
            site.unused_bytes += idle.life.bytes;
            if (patterns_.avoidable.size() < max_avoidable) {
                patterns_.avoidable.push_back(idle.life);
            } else {
                ++patterns_.omitted;
            }
        }
    }

    /// Adds a span that ends at the current event.
    void add_span(std::uint64_t begin, std::uint64_t bytes, std::uint32_t site,
                  AvoidableSpan::Reason reason) {
        add({begin, number_, bytes, site, reason});
    }
    void add(const AvoidableSpan& span) {
        if (patterns_.avoidable.size() == max_avoidable) {
            ++patterns_.omitted;
            return;
        }
        patterns_.avoidable.push_back(span);
    }

    void step() {
        if (!steps_) {
            return;
        }
        // The aggregator recognizes the first end of a step only at the second.
        const std::uint64_t ended = steps_->ended(figures_);
        while (step_ends_.size() < ended) {
            step_ends_.push_back(number_);
        }
    }

    /// Blocks live at the end are avoidable from the end of their step on.
    void collect_leaks() {
        figures_.live().for_each([&](std::uint32_t slot, const trace::Live& live) {
            if (!is_the_programs(live)) {
                return;
            }
            if (has_rounding_[live.site] && live.size > live.requested) {
                add_span(made_[slot], live.size - live.requested, live.site,
                         AvoidableSpan::Reason::rounding);
            }
            const trace::Lifetimes& others = figures_.sites()[live.site].lifetimes;
            if (!others.empty() && figures_.duration_ns() - live.time_ns > 2 * others.max()) {
                ++patterns_.sites[live.site].outstayed_count;
                patterns_.sites[live.site].outstayed_bytes += live.size;
                add_span(made_[slot], live.size, live.site, AvoidableSpan::Reason::outstayed);
            }
            if (step_made_[slot] < step_ends_.size()) {
                add_span(step_ends_[step_made_[slot]], live.size, live.site,
                         AvoidableSpan::Reason::leaked);
            }
        });
    }

    const model::Device* find_device(std::uint32_t index, std::size_t* at) const {
        const auto found =
            std::find_if(report_.devices.begin(), report_.devices.end(),
                         [index](const model::Device& device) { return device.index == index; });
        *at = static_cast<std::size_t>(found - report_.devices.begin());
        return found == report_.devices.end() ? nullptr : &*found;
    }

    /// Stores the segments if the event takes the reserved curve to its peak for the first time.
    void snapshot_before_peak(const trace::Event& event) {
        std::size_t at = 0;
        const model::Device* const device = find_device(event.device, &at);
        if (device == nullptr || patterns_.growth[at].time_ns != 0 ||
            (event.type == EventType::alloc && event.origin == trace::Origin::pool)) {
            return;
        }
        const std::uint64_t peak = device->curve(model::Curve::reserved).peak_bytes;
        const std::uint64_t now =
            figures_.devices()[event.device]->curve(CurveName::reserved).current;
        const std::uint64_t more = event.size == 0 ? event.requested : event.size;
        if (peak != 0 && now < peak && now + more >= peak) {
            patterns_.growth[at] = {event.time_ns, snapshot_segments(figures_, event.device)};
        }
    }

    /// Collects the rounding when the allocated curve first reaches its peak.
    void collect_rounding(std::uint32_t index) {
        std::size_t at = 0;
        const model::Device* const device = find_device(index, &at);
        if (device == nullptr || peak_seen_[at] ||
            figures_.devices()[index]->curve(CurveName::allocated).current !=
                device->curve(model::Curve::allocated).peak_bytes) {
            return;
        }
        peak_seen_[at] = true;
        figures_.live().for_each([&](std::uint32_t, const trace::Live& live) {
            const trace::Site& site = figures_.sites()[live.site];
            if (!live.pending && live.size > live.requested && live.site < patterns_.sites.size() &&
                site.device == index && trace::counts_as_device_memory(site.kind)) {
                patterns_.sites[live.site].rounding_at_peak += live.size - live.requested;
                ++patterns_.sites[live.site].count_at_peak;
            }
        });
    }

    const model::Report& report_;
    std::optional<StepCounter> steps_;
    bool steps_are_found_ = false;
    const bool work_recorded_;
    trace::Aggregator figures_;
    CollectedPatterns patterns_;
    std::uint64_t number_ = 0;              ///< of the current event
    std::vector<std::uint64_t> step_ends_;  ///< event numbers
    std::vector<std::uint32_t> step_made_;  ///< by slot of the live table
    std::vector<std::uint64_t> made_;       ///< event numbers of the allocations, likewise
    std::vector<bool> peak_seen_;           ///< by device
    std::unordered_map<std::uint32_t, RecentPeaks> peaks_;  ///< by device
    struct Group {
        std::uint64_t since = 0;  ///< the number of its last event
        std::uint64_t held = 0;   ///< since then
    };
    const std::vector<std::uint32_t>& groups_;  ///< by site
    std::vector<Group> group_;
    std::vector<bool> has_rounding_;  ///< by site: enough to be worth a span
    BusyTimes busy_;                  ///< of all GPUs, since they can access each other's memory
    std::vector<Idle> idle_;
    std::unordered_map<std::uint32_t, Latest> latest_;  ///< by thread
    /// By slot of the live table: the chain whose last block lives there.
    std::unordered_map<std::uint32_t, ReplacedChain> replaced_;
};

}  // namespace

bool all_work_recorded(const model::Report& report) {
    return !report.process.started_late && report.coverage.lost_records == 0 &&
           std::any_of(report.devices.begin(), report.devices.end(),
                       [](const model::Device& device) { return device.work.has_value(); });
}

CollectedPatterns collect_patterns(const model::Report& report, const std::string& log,
                                   const model::Steps* steps,
                                   const std::vector<std::uint32_t>& groups) {
    PatternCollector collector(report, steps, groups);
    constexpr trace::LogPart part = trace::LogPart::beginning;
    const trace::LogReadResult read = read_log_ahead(log, collector, part);
    CollectedPatterns patterns = collector.finish(!read.gap);
    patterns.stretch = describe_stretch(read, part);
    return patterns;
}

}  // namespace memlab::report
