#include "report/html/history.hpp"

#include <algorithm>
#include <concepts>
#include <limits>
#include <tuple>
#include <utility>

#include "report/html/memory_map.hpp"
#include "report/html/moment_recorder.hpp"
#include "report/lacks.hpp"
#include "report/levels.hpp"
#include "report/reading/read_ahead.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

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

/// The width of the stretches of which the highest moment of each device, and of each kind of
/// memory with a peak of its own, is kept: some of the curves' buckets, so that the two are of the
/// same times.
std::uint64_t stretch_of(const HistoryLimits& limits, std::size_t devices,
                         std::uint64_t duration_ns) {
    const std::size_t buckets = buckets_of_each(limits.buckets, devices);
    const std::size_t stretches = buckets_of_each(limits.moments, devices);
    const std::uint64_t bucket_ns = duration_ns / std::max<std::size_t>(buckets, 1) + 1;
    return bucket_ns * ((buckets + stretches - 1) / std::max<std::size_t>(stretches, 1));
}

class HistoryCollector final : public trace::GenericSink<HistoryCollector>,
                               private trace::LiveObserver {
  public:
    HistoryCollector(const model::Report& report, const SiteCategories& categories,
                     const HistoryLimits& limits)
        : limits_(limits),
          chosen_ooms_(report),
          end_ns_(known_until(report).value_or(report.process.duration_ns)),
          moments_(report, categories, limits,
                   stretch_of(limits, used_devices(report).size(), end_ns_), history_) {
        const std::vector<const model::Device*> devices = used_devices(report);
        history_.curves.resize(devices.size());
        const std::size_t buckets = buckets_of_each(limits.buckets, devices.size());
        for (std::size_t i = 0; i < devices.size(); ++i) {
            history_.curves[i].device = devices[i];
            curves_.emplace_back(history_.curves[i], buckets, end_ns_);
            moments_.add_device();
        }
        for (const model::Device* device : devices) {
            add_kinds(*device);
        }
        const std::uint64_t stretches = end_ns_ / history_.moment_ns + 1;
        map_every_ = std::max<std::uint64_t>(stretches / std::max<std::size_t>(limits.maps, 1), 1);
        state_.set_observer(this);
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
        if constexpr (std::same_as<Record, trace::AggregateState>) {
            if (record.last) {
                moments_.update_all(state_);
                update();
            }
            return;
        }
        if constexpr (std::same_as<Record, trace::Checkpoint>) {
            open_.close_all(record.time_ns,
                            [this](TimelineScope&& scope) { keep(std::move(scope)); });
        }
        constexpr bool always =
            std::same_as<Record, trace::DeviceSample> || std::same_as<Record, trace::ContextLost>;
        if (always || moments_.touched()) {
            update();
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
        if (chosen_ooms_.has(oom.time_ns, oom.device, oom.requested)) {
            pin({History::What::oom, state_.duration_ns(), std::nullopt, oom.device, oom.requested,
                 state_.string(oom.api)},
                ooms_, limits_.ooms);
            map_pin_ = true;
        }
    }

    History finish() {
        advance(end_ns_ + 1);
        keep_pinned();
        history_.events.push_back({History::What::end, end_ns_, std::nullopt, 0, 0, {}});
        moments_.keep(end_ns_, {history_.events.size() - 1}, make_map(false));
        moments_.end_stretch();
        moments_.finish();
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
    /// Memory of a kind with a peak of its own.
    struct OwnPeak {
        std::uint64_t device = 0;
        std::size_t kind = 0;
        std::uint64_t peak_bytes = 0;
        std::uint64_t now = 0;
        bool seen = false;
    };

    void add_kinds(const model::Device& device) {
        for (std::size_t kind = 0; kind < trace::memory_kind_count && device.kind_curves; ++kind) {
            const auto known = device.kind_curves->find(
                std::string(trace::name_of(static_cast<trace::MemoryKind>(kind))));
            if (known != device.kind_curves->end()) {
                kinds_.push_back({device.index, kind, known->second.curve.peak_bytes});
                moments_.add_device();
            }
        }
    }

    void update_kinds(std::uint64_t now_ns) {
        for (std::size_t i = 0; i < kinds_.size(); ++i) {
            OwnPeak& own = kinds_[i];
            if (own.device >= state_.devices().size() || state_.devices()[own.device] == nullptr) {
                continue;
            }
            const std::uint64_t held = state_.devices()[own.device]->kinds[own.kind].live_bytes;
            if (held == own.now) {
                continue;
            }
            own.now = held;
            moments_.set_allocated(curves_.size() + i, held, now_ns);
            if (!own.seen && held == own.peak_bytes && held != 0) {
                own.seen = true;
                moments_.keep(now_ns, {}, std::nullopt);
            }
        }
    }

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
        if (moments_.stretch_end_ns() <= std::min(to_ns, end_ns_)) {
            moments_.skip_to(std::min(to_ns, end_ns_));
            stretches_ = to_ns / history_.moment_ns;
        }
        set_due();
    }

    /// Keeps the moments before `now`.
    void advance(std::uint64_t now) {
        while (true) {
            const std::uint64_t end = moments_.stretch_end_ns();
            if (!pinned_.empty() && pin_ns_ < std::min(now, end)) {
                keep_pinned();
            }
            if (now < end || end > end_ns_) {
                break;
            }
            if (++stretches_ % map_every_ == 0) {
                moments_.keep(end - 1, {}, make_map(false));
            }
            moments_.end_stretch();
        }
        set_due();
    }

    void set_due() {
        due_ns_ = std::min(pinned_.empty() ? std::numeric_limits<std::uint64_t>::max() : pin_ns_,
                           moments_.stretch_end_ns() - 1);
    }

    void keep_pinned() {
        if (!pinned_.empty()) {
            moments_.keep(pin_ns_, std::move(pinned_), map_pin_ ? make_map(true) : std::nullopt);
            pinned_.clear();
            map_pin_ = false;
        }
    }

    std::optional<History::Map> make_map(bool important) {
        const std::uint64_t blocks = state_.live().size() * curves_.size();
        if (important ? important_maps_ == limits_.peak_maps
                      : looked_at_ + blocks > limits_.map_blocks) {
            ++history_.maps_left_out;
            return std::nullopt;
        }
        important_maps_ += important ? 1 : 0;
        looked_at_ += important ? 0 : blocks;
        History::Map map;
        for (const CurveRecorder& curves : curves_) {
            maps_.add(state_, static_cast<std::uint32_t>(curves.device().index),
                      important ? limits_.peak_parts : limits_.map_parts, map);
        }
        return map.segments.empty() ? std::nullopt : std::optional(std::move(map));
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

    void allocated(std::uint32_t /*slot*/, const trace::Live& live,
                   const trace::Event& /*by*/) override {
        moments_.touch(live);
    }
    void freed(std::uint32_t /*slot*/, const trace::Live& live,
               const trace::LifeEnd& /*end*/) override {
        moments_.touch(live);
    }
    void moved(std::uint32_t /*slot*/, const trace::Live& live, std::uint32_t to) override {
        moments_.move(live, to);
    }

    /// The figures may have changed.
    void update() {
        const std::uint64_t now = state_.duration_ns();
        moments_.update(state_);
        update_kinds(now);
        for (std::size_t i = 0; i < curves_.size(); ++i) {
            CurveRecorder& curves = curves_[i];
            const std::uint64_t index = curves.device().index;
            if (index >= state_.devices().size() || state_.devices()[index] == nullptr) {
                continue;
            }
            const trace::DeviceTotals& device = *state_.devices()[index];
            if (!curves.record(device, now)) {
                continue;
            }
            const std::uint64_t allocated = device.curve(trace::CurveName::allocated).current;
            moments_.set_allocated(i, allocated, now);
            if (!curves.peak_seen && allocated == peak_of(curves.device()) && allocated != 0) {
                curves.peak_seen = true;
                history_.events.push_back(
                    {History::What::peak, now, std::nullopt, index, allocated, {}});
                moments_.keep(now, {history_.events.size() - 1}, make_map(true));
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

    const HistoryLimits& limits_;
    const ChosenOoms chosen_ooms_;
    const std::uint64_t end_ns_;
    History history_;
    MomentRecorder moments_;
    MapMaker maps_;
    std::vector<CurveRecorder> curves_;
    std::vector<OwnPeak> kinds_;
    ScopeTracker open_;
    std::uint64_t map_every_ = 1;  ///< stretches
    std::uint64_t stretches_ = 0;  ///< that have ended
    std::uint64_t due_ns_ = 0;     ///< of the next moment to keep, or earlier
    std::uint64_t pin_ns_ = 0;
    std::vector<std::size_t> pinned_;  ///< events whose moment is at pin_ns_
    bool map_pin_ = false;
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
        history.gap = {read.gap->from_ns, read.gap->to_ns};
        fill_curves(history, read.gap->from_ns, read.gap->to_ns);
    } else if (recording_stopped(report)) {
        history.gap = {*known_until(report), report.process.duration_ns};
    }
    if (const auto stopped = collector.stopped_ns(); stopped && !recording_stopped(report)) {
        fill_curves(history, *stopped, std::numeric_limits<std::uint64_t>::max());
    }
    return history;
}

}  // namespace memlab::report
