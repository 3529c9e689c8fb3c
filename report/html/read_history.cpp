#include "report/html/history.hpp"

#include <algorithm>
#include <concepts>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "report/html/memory_map.hpp"
#include "report/html/moment_grid.hpp"
#include "report/lacks.hpp"
#include "report/reading/read_ahead.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

/// Adds to a holder what it has at a moment, if that is new.
void note(History::Holder& holder, std::size_t moment, std::uint64_t bytes, std::uint64_t blocks) {
    constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
    const auto count = static_cast<std::uint32_t>(std::min(blocks, most));
    if (holder.changes.empty()
            ? bytes != 0 || count != 0
            : holder.changes.back().bytes != bytes || holder.changes.back().blocks != count) {
        holder.changes.push_back({static_cast<std::uint32_t>(moment), count, bytes});
    }
}

/// Which sites are followed, and where the others are summed.
class SiteSlots {
  public:
    SiteSlots(const model::Report& report, const SiteCategories& categories, std::size_t followed,
              History& history)
        : history_(history), slots_(report.sites.size(), ignored) {
        for (const model::Device& device : report.devices) {
            devices_.insert(device.index);
        }
        std::vector<std::size_t> order;
        for (std::size_t i = 0; i < report.sites.size(); ++i) {
            if (devices_.contains(report.sites[i].device)) {
                order.push_back(i);
            }
        }
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return std::tie(report.sites[a].peak_bytes, report.sites[a].bytes) >
                   std::tie(report.sites[b].peak_bytes, report.sites[b].bytes);
        });
        for (std::size_t i = 0; i < order.size(); ++i) {
            const model::Site& site = report.sites[order[i]];
            if (i < followed) {
                slots_[order[i]] = static_cast<std::int64_t>(history.sites.size());
                history.sites.push_back(order[i]);
                history.holders.emplace_back();
                continue;
            }
            const std::size_t group = group_of(site.device, site.kind, categories.at(order[i]));
            slots_[order[i]] = first_group - static_cast<std::int64_t>(group);
            History::Rest& rest = history.rest[group];
            rest.allocations += site.count;
            rest.allocated_bytes += site.bytes;
            ++rest.sites;
        }
    }

    /// Adds what all sites hold now, at the moment of this number.
    void note_all(const trace::Aggregator& state, std::size_t moment) {
        sums_.assign(history_.rest.size(), {});
        for (std::size_t i = 0; i < state.sites().size(); ++i) {
            const trace::Site& site = state.sites()[i];
            if (i == slots_.size()) {
                add_unknown(site);
            }
            const std::int64_t slot = slots_[i];
            if (slot >= 0) {
                note(history_.holders[static_cast<std::size_t>(slot)], moment, site.live_bytes,
                     site.live_count);
            } else if (slot != ignored) {
                auto& [bytes, blocks] = sums_[static_cast<std::size_t>(first_group - slot)];
                bytes += site.live_bytes;
                blocks += site.live_count;
            }
        }
        for (std::size_t i = 0; i < sums_.size(); ++i) {
            note(history_.rest[i].holder, moment, sums_[i].first, sums_[i].second);
        }
    }

  private:
    static constexpr std::int64_t ignored = -1;
    static constexpr std::int64_t first_group = -2;

    /// The log of a running program has grown since the report.
    void add_unknown(const trace::Site& site) {
        if (!devices_.contains(site.device)) {
            slots_.push_back(ignored);
            return;
        }
        const std::size_t group = group_of(site.device, trace::name_of(site.kind), std::nullopt);
        slots_.push_back(first_group - static_cast<std::int64_t>(group));
        sums_.resize(history_.rest.size());
    }

    std::size_t group_of(std::uint64_t device, const std::string& kind,
                         std::optional<std::size_t> category) {
        const auto [at, is_new] =
            groups_.try_emplace({device, kind, category}, history_.rest.size());
        if (is_new) {
            history_.rest.push_back({device, kind, category, 0, 0, 0, {}});
        }
        return at->second;
    }

    History& history_;
    std::set<std::uint64_t> devices_;
    std::vector<std::int64_t> slots_;  ///< by site: its holder, its group, or `ignored`
    std::map<std::tuple<std::uint64_t, std::string, std::optional<std::size_t>>, std::size_t>
        groups_;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> sums_;  ///< bytes and blocks by group
};

/// The curves of one device as they are recorded.
class CurveRecorder {
  public:
    CurveRecorder(History::Curves& curves, std::size_t buckets, std::uint64_t duration_ns)
        : curves_(curves) {
        curves.bucket_ns = duration_ns / buckets + 1;
        now_.fill(0);
        now_.back() = model::TimelineRow::unknown;
        curves.buckets.assign(static_cast<std::size_t>(duration_ns / curves.bucket_ns) + 1,
                              {now_, now_, now_});
    }

    /// True if a value changed.
    bool record(const trace::DeviceTotals& device, std::uint64_t time_ns) {
        History::Bucket::Values values;
        for (std::size_t i = 0; i < model::curve_count; ++i) {
            values[i] = device.curves[i].current;
        }
        if (!device.sampled) {
            values.back() = model::TimelineRow::unknown;
        }
        if (values == now_) {
            return false;
        }
        continue_to(bucket_of(time_ns));
        History::Bucket& bucket = curves_.buckets[at_];
        for (std::size_t i = 0; i < model::curve_count; ++i) {
            // `unknown` is the largest number: its successor is 0, the least.
            bucket.min[i] = std::min(bucket.min[i], values[i]);
            bucket.max[i] = std::max(bucket.max[i] + 1, values[i] + 1) - 1;
        }
        bucket.last = values;
        now_ = values;
        return true;
    }

    void finish() { continue_to(curves_.buckets.size() - 1); }
    const model::Device& device() const { return *curves_.device; }

    bool peak_seen = false;

  private:
    std::size_t bucket_of(std::uint64_t time_ns) const {
        return std::min(static_cast<std::size_t>(time_ns / curves_.bucket_ns),
                        curves_.buckets.size() - 1);
    }
    void continue_to(std::size_t bucket) {
        while (at_ < bucket) {
            curves_.buckets[++at_] = {now_, now_, now_};
        }
    }

    History::Curves& curves_;
    History::Bucket::Values now_{};
    std::size_t at_ = 0;
};

std::vector<const model::Device*> used_devices(const model::Report& report) {
    std::vector<const model::Device*> used;
    for (const model::Device& device : report.devices) {
        if (device.used()) {
            used.push_back(&device);
        }
    }
    return used;
}

/// Many devices share what one may have.
std::size_t buckets_of_each(std::size_t buckets, std::size_t devices) {
    return std::max<std::size_t>(std::min(buckets, 2 * buckets / std::max<std::size_t>(devices, 1)),
                                 std::min<std::size_t>(buckets, 256));
}

class HistoryCollector final : public trace::GenericSink<HistoryCollector> {
  public:
    HistoryCollector(const model::Report& report, const SiteCategories& categories,
                     const HistoryLimits& limits)
        : report_(report),
          limits_(limits),
          end_ns_(known_until(report).value_or(report.process.duration_ns)),
          grid_(end_ns_, limits.moments, limits.maps),
          slots_(report, categories, limits.sites, history_) {
        const std::vector<const model::Device*> devices = used_devices(report);
        history_.curves.resize(devices.size());
        const std::size_t buckets = buckets_of_each(limits.buckets, devices.size());
        for (std::size_t i = 0; i < devices.size(); ++i) {
            history_.curves[i].device = devices[i];
            curves_.emplace_back(history_.curves[i], buckets, end_ns_);
        }
        for (const model::Oom& oom : report.ooms) {
            listed_ooms_.emplace(oom.time_ns, oom.device, oom.requested_bytes);
        }
    }

    /// When the log stopped; none: it did not.
    std::optional<std::uint64_t> stopped_ns() const { return state_.log_stopped_ns(); }

    template <typename Record>
    void take(const Record& record) {
        if constexpr (std::same_as<Record, trace::Checkpoint>) {
            pass_gap(record.time_ns);
        }
        if constexpr (requires { record.time_ns; }) {
            if (!begin(record.time_ns)) {
                return;
            }
        }
        state_.on(record);
        if constexpr (std::same_as<Record, trace::DeviceSample> ||
                      std::same_as<Record, trace::ContextLost>) {
            update();
        } else if constexpr (std::same_as<Record, trace::AggregateState>) {
            if (record.last) {
                update();
            }
        } else if constexpr (std::same_as<Record, trace::Checkpoint>) {
            open_.close_all(record.time_ns,
                            [this](TimelineScope&& scope) { keep(std::move(scope)); });
        }
    }
    void take(const trace::Event& event) {
        if (!begin(event.time_ns)) {
            return;
        }
        state_.on(event);
        switch (event.type) {
            case trace::EventType::mark:
                pin({History::What::mark, state_.duration_ns(), std::nullopt, 0, 0,
                     state_.string(event.name)},
                    marks_, limits_.marks);
                break;
            case trace::EventType::scope_begin:
            case trace::EventType::scope_end:
                open_.add(state_, event, state_.duration_ns(),
                          [this](TimelineScope&& scope) { keep(std::move(scope)); });
                break;
            default:
                update();
                break;
        }
    }
    void take(const trace::OomEvent& oom) {
        if (!begin(oom.time_ns)) {
            return;
        }
        state_.on(oom);
        if (is_listed(oom)) {
            pin({History::What::oom, state_.duration_ns(), std::nullopt, oom.device, oom.requested,
                 state_.string(oom.api)},
                ooms_, limits_.ooms);
            map_pin_ = true;
        }
    }

    History finish() {
        advance(std::numeric_limits<std::uint64_t>::max());
        history_.events.push_back(
            {History::What::end, end_ns_, history_.moments.size() - 1, 0, 0, {}});
        open_.close_all(std::max(state_.duration_ns(), end_ns_),
                        [this](TimelineScope&& scope) { keep(std::move(scope)); });
        keep_longest();
        std::stable_sort(history_.scopes.begin(), history_.scopes.end(),
                         [](const TimelineScope& a, const TimelineScope& b) {
                             return std::tie(a.begin_ns, a.depth) < std::tie(b.begin_ns, b.depth);
                         });
        for (CurveRecorder& curves : curves_) {
            curves.finish();
            if (!curves.peak_seen && peak_of(curves.device()) != 0) {
                const model::CurveSummary& peak = curves.device().curve(model::Curve::allocated);
                history_.events.push_back({History::What::peak,
                                           peak.peak_time_ns,
                                           std::nullopt,
                                           curves.device().index,
                                           peak.peak_bytes,
                                           {}});
            }
        }
        std::stable_sort(history_.events.begin(), history_.events.end(),
                         [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
        history_.merged_below = maps_.merged_below();
        return std::move(history_);
    }

  private:
    static std::uint64_t peak_of(const model::Device& device) {
        return device.curve(model::Curve::allocated).peak_bytes;
    }

    /// Before a record of that time; false: it is later than the report.
    bool begin(std::uint64_t time_ns) {
        const std::uint64_t now = std::max(time_ns, state_.duration_ns());
        if (now > end_ns_) {
            return false;
        }
        if (now > due_ns_) {
            advance(now);
        }
        return true;
    }

    /// What was held is not known until `to_ns`: no moments.
    void pass_gap(std::uint64_t to_ns) {
        advance(state_.duration_ns() + 1);
        while (grid_.next_ns() < to_ns) {
            grid_.advance();
        }
    }

    /// Closes the moments before `now`.
    void advance(std::uint64_t now) {
        while (true) {
            const std::uint64_t grid = grid_.next_ns();
            due_ns_ = std::min(pinned_.empty() ? MomentGrid::none : pin_ns_, grid);
            if (due_ns_ >= now || due_ns_ == MomentGrid::none) {
                return;
            }
            const bool at_pin = !pinned_.empty() && pin_ns_ == due_ns_;
            const bool wants_map = (grid == due_ns_ && grid_.has_map()) || (at_pin && map_pin_);
            const std::size_t moment = add_moment(due_ns_, wants_map, at_pin && map_pin_);
            if (at_pin) {
                for (const std::size_t event : pinned_) {
                    history_.events[event].moment = moment;
                }
                pinned_.clear();
                map_pin_ = false;
            }
            if (grid == due_ns_) {
                grid_.advance();
            }
        }
    }

    std::size_t add_moment(std::uint64_t time_ns, bool wants_map, bool important) {
        const std::size_t moment = history_.moments.size();
        history_.moments.push_back(time_ns);
        if (changed_) {
            slots_.note_all(state_, moment);
            changed_ = false;
        }
        if (wants_map) {
            add_map(moment, important);
        }
        return moment;
    }

    void add_map(std::size_t moment, bool important) {
        const std::uint64_t blocks = state_.live().size() * curves_.size();
        if (important ? important_maps_ == limits_.peak_maps
                      : looked_at_ + blocks > limits_.map_blocks) {
            ++history_.maps_left_out;
            return;
        }
        important_maps_ += important ? 1 : 0;
        looked_at_ += important ? 0 : blocks;
        History::Map map{moment, {}};
        for (const CurveRecorder& curves : curves_) {
            maps_.add(state_, static_cast<std::uint32_t>(curves.device().index),
                      important ? limits_.peak_parts : limits_.map_parts, map);
        }
        if (!map.segments.empty()) {
            history_.maps.push_back(std::move(map));
        }
    }

    /// The moment of `event` is closed by the first later record.
    void pin(History::Event&& event, std::size_t& count, std::size_t limit) {
        if (count == limit) {
            ++history_.events_left_out;
            return;
        }
        ++count;
        pin_ns_ = event.time_ns;
        due_ns_ = std::min(due_ns_, pin_ns_);
        pinned_.push_back(history_.events.size());
        history_.events.push_back(std::move(event));
    }

    bool is_listed(const trace::OomEvent& oom) const {
        const bool beyond = report_.oom_count > report_.ooms.size() && !report_.ooms.empty() &&
                            oom.time_ns > report_.ooms.back().time_ns;
        return beyond || listed_ooms_.contains({oom.time_ns, oom.device, oom.requested});
    }

    /// The figures may have changed.
    void update() {
        changed_ = true;
        const std::uint64_t now = state_.duration_ns();
        for (CurveRecorder& curves : curves_) {
            const std::uint64_t index = curves.device().index;
            if (index >= state_.devices().size() || state_.devices()[index] == nullptr) {
                continue;
            }
            const trace::DeviceTotals& device = *state_.devices()[index];
            if (curves.record(device, now) && !curves.peak_seen &&
                device.curve(trace::CurveName::allocated).current == peak_of(curves.device()) &&
                peak_of(curves.device()) != 0) {
                curves.peak_seen = true;
                const std::size_t moment = add_moment(now, true, true);
                changed_ = true;  // what follows at the same time is another moment's
                history_.events.push_back(
                    {History::What::peak, now, moment, index, peak_of(curves.device()), {}});
            }
        }
    }

    void keep(TimelineScope&& scope) {
        history_.scopes.push_back(std::move(scope));
        if (history_.scopes.size() >= 2 * limits_.scopes) {
            keep_longest();
        }
    }
    void keep_longest() {
        auto& scopes = history_.scopes;
        if (scopes.size() <= limits_.scopes) {
            return;
        }
        std::nth_element(scopes.begin(),
                         scopes.begin() + static_cast<std::ptrdiff_t>(limits_.scopes), scopes.end(),
                         [](const TimelineScope& a, const TimelineScope& b) {
                             return a.end_ns - a.begin_ns > b.end_ns - b.begin_ns;
                         });
        history_.scopes_left_out += scopes.size() - limits_.scopes;
        scopes.resize(limits_.scopes);
    }

    const model::Report& report_;
    const HistoryLimits& limits_;
    const std::uint64_t end_ns_;
    History history_;
    MomentGrid grid_;
    SiteSlots slots_;
    MapMaker maps_;
    std::vector<CurveRecorder> curves_;
    ScopeTracker open_;
    std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> listed_ooms_;
    std::uint64_t due_ns_ = 0;  ///< of the next moment to close, or earlier
    std::uint64_t pin_ns_ = 0;
    std::vector<std::size_t> pinned_;  ///< events whose moment is at pin_ns_
    bool map_pin_ = false;
    bool changed_ = false;  ///< since the latest moment
    std::size_t marks_ = 0;
    std::size_t ooms_ = 0;
    std::size_t important_maps_ = 0;
    std::uint64_t looked_at_ = 0;
    trace::Aggregator state_;
};

}  // namespace

History read_history(const model::Report& report, const std::string& log,
                     const SiteCategories& categories, const HistoryLimits& limits) {
    HistoryCollector collector(report, categories, limits);
    const trace::LogReadResult read = read_log_ahead(log, collector);
    History history = collector.finish();
    history.stretch = describe_stretch(read, trace::LogPart::everything);
    if (read.gap) {
        fill_curves(history, read.gap->from_ns, read.gap->to_ns);
    }
    if (const auto stopped = collector.stopped_ns(); stopped && !recording_stopped(report)) {
        fill_curves(history, *stopped, std::numeric_limits<std::uint64_t>::max());
    }
    return history;
}

}  // namespace memlab::report
