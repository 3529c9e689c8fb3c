#include "report/timeline/timeline.hpp"

#include <algorithm>
#include <concepts>
#include <limits>
#include <map>
#include <utility>

#include "report/device_label.hpp"
#include "report/lacks.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/reading/reader.hpp"
#include "report/timeline/report_rows.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

constexpr auto device_used = static_cast<std::size_t>(model::Curve::device_used);

/// The time of a record, if it has one.
template <typename Record>
std::optional<std::uint64_t> record_time(const Record& record) {
    if constexpr (requires { record.time_ns; }) {
        return record.time_ns;
    } else {
        return std::nullopt;
    }
}

/// Aggregates records, and calls an observer before and after each one.
template <typename Observer>
class ObservedAggregator final : public trace::GenericSink<ObservedAggregator<Observer>> {
  public:
    ObservedAggregator(Observer& observer, trace::Aggregator& aggregator)
        : observer_(observer), aggregator_(aggregator) {}

    template <typename Record>
    void take(const Record& record) {
        if constexpr (std::same_as<Record, trace::Checkpoint>) {
            if (!observer_.before_gap(record.time_ns)) {
                return;
            }
        } else if (const auto time = record_time(record)) {
            if (!observer_.before(aggregator_, std::max(*time, aggregator_.duration_ns()))) {
                return;
            }
        }
        aggregator_.on(record);
        observer_.after(aggregator_, record);
    }

  private:
    Observer& observer_;
    trace::Aggregator& aggregator_;
};

model::TimelineRow make_row(std::uint64_t begin_ns, const trace::Timeline::Bucket& bucket) {
    model::TimelineRow row;
    row.begin_ns = begin_ns;
    for (std::size_t curve = 0; curve < model::curve_count; ++curve) {
        if (bucket.last[curve] == trace::Timeline::unknown) {
            continue;  // device_used before its first sample
        }
        const bool partly = bucket.max[curve] == trace::Timeline::unknown;
        row.curves[curve] = {.min = bucket.min[curve],
                             .max = partly ? bucket.last[curve] : bucket.max[curve],
                             .last = bucket.last[curve]};
    }
    return row;
}

}  // namespace

/// Collects the curves, marks, scopes and failures in a time range of a log.
class RangeCollector {
  public:
    RangeCollector(std::uint64_t from_ns, std::uint64_t to_ns) {
        view_.from_ns = from_ns;
        view_.to_ns = to_ns;
        view_.from_log = true;
    }

    bool before(const trace::Aggregator& state, std::uint64_t time_ns) {
        if (!entered_ && time_ns >= view_.from_ns) {
            enter(state);
        }
        return true;
    }

    /// Records are missing before `time_ns`.
    bool before_gap(std::uint64_t time_ns) {
        open_.close_all(time_ns, [this](TimelineScope&& scope) { note(std::move(scope)); });
        return true;
    }

    template <typename Record>
    void after(const trace::Aggregator& state, const Record& record) {
        const std::uint64_t now = state.duration_ns();
        if constexpr (std::same_as<Record, trace::AggregateState>) {
            if (record.last && now >= view_.from_ns) {
                continue_after_gap(state, now);
            }
            return;
        }
        const bool within = entered_ && now <= view_.to_ns;
        if constexpr (std::same_as<Record, trace::Event>) {
            if (record.type == trace::EventType::mark) {
                if (within) {
                    note(view_.marks, TimelineMark{now, state.string(record.name)});
                }
            } else if (record.type == trace::EventType::scope_begin ||
                       record.type == trace::EventType::scope_end) {
                open_.add(state, record, now,
                          [this](TimelineScope&& scope) { note(std::move(scope)); });
            } else if (within) {
                sample(state, record.device, now);
            }
        } else if constexpr (std::same_as<Record, trace::DeviceSample>) {
            if (within) {
                sample(state, record.device, now);
            }
        } else if constexpr (std::same_as<Record, trace::MemoryMoved>) {
            if (within) {
                note(view_.marks, TimelineMark{now, moved_text(record.device, record.away)});
                sample(state, record.device, now);
            }
        } else if constexpr (std::same_as<Record, trace::ContextLost>) {
            for (std::uint32_t device = 0; within && device < state.devices().size(); ++device) {
                sample(state, device, now);
            }
        } else if constexpr (std::same_as<Record, trace::OomEvent>) {
            if (within) {
                note(view_.ooms,
                     TimelineOom{now, record.device, record.requested, state.string(record.api)});
            }
        }
    }

    /// After the last record.
    void finish(const trace::Aggregator& state, const trace::LogReadResult& read) {
        if (!entered_) {
            enter(state);
        }
        // Of what was open when the log stopped the end is not known.
        open_.close_all(state.log_stopped_ns().value_or(state.duration_ns()),
                        [this](TimelineScope&& scope) { note(std::move(scope)); });
        std::stable_sort(view_.scopes.begin(), view_.scopes.end(),
                         [](const TimelineScope& a, const TimelineScope& b) {
                             return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns
                                                             : a.depth < b.depth;
                         });
        if (read.gap && read.gap->to_ns > view_.from_ns && read.gap->from_ns < view_.to_ns) {
            view_.stretch = describe_stretch(read, trace::LogPart::everything);
            view_.coarse.push_back({read.gap->from_ns, read.gap->to_ns});
        }
        if (const auto stopped = state.log_stopped_ns(); stopped && *stopped < view_.to_ns) {
            view_.coarse.push_back({*stopped, std::numeric_limits<std::uint64_t>::max()});
        }
    }

    /// What was collected, of these devices.
    TimelineView view(std::vector<DeviceTimeline> devices) const {
        TimelineView view = view_;
        view.devices = std::move(devices);
        std::for_each(view.devices.begin(), view.devices.end(), [this](auto& each) { fill(each); });
        return view;
    }

  private:
    struct Sampled {
        trace::Timeline timeline;
        KindRange kinds;
        std::array<std::optional<DeviceTimeline::Curve>, model::curve_count> curves;
    };
    template <typename List>
    void note(List& list, typename List::value_type&& value) {
        if (list.size() < TimelineView::max_notes) {
            list.push_back(std::move(value));
        } else {
            ++view_.left_out;
        }
    }

    void enter(const trace::Aggregator& state) {
        entered_ = true;
        for (std::uint32_t device = 0; device < state.devices().size(); ++device) {
            sample(state, device, view_.from_ns);
        }
    }

    void continue_after_gap(const trace::Aggregator& state, std::uint64_t now) {
        const std::uint64_t from = entered_ ? now : view_.from_ns;
        entered_ = true;
        for (std::uint32_t device = 0; now <= view_.to_ns && device < state.devices().size();
             ++device) {
            sample(state, device, from);
        }
    }

    void sample(const trace::Aggregator& state, std::uint32_t index, std::uint64_t now) {
        if (index >= state.devices().size() || state.devices()[index] == nullptr) {
            return;
        }
        const trace::DeviceTotals& device = *state.devices()[index];
        Sampled& sampled = sampled_[index];
        trace::Timeline::Values values{};
        for (std::size_t curve = 0; curve < model::curve_count; ++curve) {
            values[curve] = device.curves.at(curve).current;
            if (curve == device_used && !device.sampled) {
                values[curve] = trace::Timeline::unknown;
                continue;
            }
            auto& figures = sampled.curves[curve];
            if (!figures) {
                // A device that appears within the time range held nothing at its start.
                const bool first = now == view_.from_ns || curve == device_used;
                figures = {.at_begin = first ? values[curve] : 0,
                           .lowest = first ? values[curve] : 0,
                           .highest = values[curve],
                           .highest_ns = now,
                           .at_end = values[curve]};
            }
            figures->lowest = std::min(figures->lowest, values[curve]);
            if (values[curve] > figures->highest) {
                figures->highest = values[curve];
                figures->highest_ns = now;
            }
            figures->at_end = values[curve];
        }
        sampled.timeline.record(now, values);
        sampled.kinds.sample(device, view_.from_ns, now);
    }

    void fill(DeviceTimeline& device) const {
        const auto at = sampled_.find(static_cast<std::uint32_t>(device.device->index));
        if (at == sampled_.end()) {
            return;
        }
        const trace::Timeline& timeline = at->second.timeline;
        device.bucket_ns = timeline.bucket_ns();
        device.curves = at->second.curves;
        device.kinds = at->second.kinds.timelines();
        for (std::size_t i = 0; i < timeline.buckets().size(); ++i) {
            if (timeline.buckets()[i].used) {
                device.rows.push_back(make_row(timeline.start_ns() + i * timeline.bucket_ns(),
                                               timeline.buckets()[i]));
            }
        }
    }

    void note(TimelineScope&& scope) {
        if (scope.end_ns >= view_.from_ns && scope.begin_ns <= view_.to_ns) {
            note(view_.scopes, std::move(scope));
        }
    }

    TimelineView view_;  ///< without devices
    bool entered_ = false;
    std::map<std::uint32_t, Sampled> sampled_;
    ScopeTracker open_;
};

namespace {

/// Lets a collector observe a log while it is aggregated.
class CollectorSink final : public trace::GenericSink<CollectorSink>, public LogFollower {
  public:
    /// `finished`: where what was collected goes when it is asked for.
    CollectorSink(RangeCollector& range, trace::Aggregator& figures,
                  std::unique_ptr<RangeCollector>& finished)
        : range_(range), figures_(figures), finished_(finished), observed_(range, figures) {}

    template <typename Record>
    void take(const Record& record) {
        observed_.take(record);
    }
    /// The collecting may go on after that.
    void finish(const trace::LogReadResult& read) override {
        finished_ = std::make_unique<RangeCollector>(range_);
        finished_->finish(figures_, read);
    }

  private:
    RangeCollector& range_;
    trace::Aggregator& figures_;
    std::unique_ptr<RangeCollector>& finished_;
    ObservedAggregator<RangeCollector> observed_;
};

}  // namespace

TimelineCollector::TimelineCollector(std::uint64_t from_ns, std::uint64_t to_ns)
    : from_ns_(from_ns), to_ns_(to_ns) {}
TimelineCollector::~TimelineCollector() = default;

LogSinkFactory TimelineCollector::sink_factory() {
    return [this](const std::string& log, trace::Aggregator& figures) {
        log_ = log;
        collecting_ = std::make_unique<RangeCollector>(from_ns_, to_ns_);
        range_.reset();
        return std::make_unique<CollectorSink>(*collecting_, figures, range_);
    };
}

bool TimelineCollector::has(const std::string& log, const model::Report& report,
                            std::uint64_t from_ns, std::uint64_t to_ns) const {
    const std::uint64_t known = known_until(report).value_or(report.process.duration_ns);
    return range_ != nullptr && log_ == log && from_ns == from_ns_ &&
           to_ns == std::min(to_ns_, known);
}

TimelineView read_timeline(const model::Report& report, const std::string& log,
                           std::uint64_t from_ns, std::uint64_t to_ns,
                           std::optional<std::uint64_t> device,
                           const TimelineCollector* collected) {
    std::vector<DeviceTimeline> devices;
    for (const model::Device& each : report.devices) {
        if (each.used() && (!device || is_on(each.index, *device))) {
            devices.emplace_back().device = &each;
        }
    }
    TimelineView view;
    if (log.empty()) {
        view.from_ns = from_ns;
        view.to_ns = to_ns;
        view.devices = std::move(devices);
        for (DeviceTimeline& each : view.devices) {
            read_report_rows(each, view);
            each.exact = false;
        }
        read_report_marks(report, view);
    } else if (collected != nullptr && collected->has(log, report, from_ns, to_ns)) {
        view = collected->range().view(std::move(devices));
        view.to_ns = to_ns;
    } else {
        TimelineCollector one(from_ns, to_ns);
        trace::Aggregator figures;
        const auto sink = one.sink_factory()(log, figures);
        const trace::LogReadResult read = read_log_ahead(log, static_cast<CollectorSink&>(*sink));
        dynamic_cast<LogFollower&>(*sink).finish(read);
        view = one.range().view(std::move(devices));
    }
    // Of a recording that stopped the range ends there: what came later nobody knows.
    for (const TimelineView::Coarse& part : view.coarse) {
        for (DeviceTimeline& each : view.devices) {
            add_report_rows(each, view, part.from_ns, part.to_ns);
        }
        add_report_notes(view, report, part.from_ns, part.to_ns);
    }
    for (DeviceTimeline& each : view.devices) {
        use_exact_peaks(each, view);
    }
    if (device) {
        std::erase_if(view.ooms,
                      [&](const TimelineOom& oom) { return !is_on(oom.device, *device); });
    }
    return view;
}

void add_categories(TimelineView& view, const model::Report& report, const std::string& log,
                    Resolver& resolver) {
    view.by_category = true;
    for (CategoryTimeline& timeline :
         read_categories(report, log, view.from_ns, view.to_ns, resolver)) {
        for (DeviceTimeline& device : view.devices) {
            if (device.device->index == timeline.device) {
                device.categories = std::move(timeline);
                break;
            }
        }
    }
}

}  // namespace memlab::report
