// What a trace has of a process:
//
//   counters   the curves of each GPU, a value for each change
//   slices     allocations from call to free, named after their place, with their call stack, a
//              track for each place below "GPU 0 allocations"; scopes, on a track of their thread;
//              ranges of the process; kernels, copies and fills, a track for each stream
//   instants   marks, and allocations that failed
//
// Slices of one track must nest, as allocations of a place do not: each that lives beside another
// is on a track of the same name, which Perfetto shows as one.
//
// From a report alone: the curves of its timeline, marks and failures; slices need the events of a
// log.
#include "report/exports/perfetto.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/device_label.hpp"
#include "report/exports/formats.hpp"
#include "report/exports/perfetto_slices.hpp"
#include "report/reading/read_ahead.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report::exports {

using model::Curve;

namespace {

constexpr std::array<std::pair<Curve, const char*>, model::curve_count> counter_names = {
    {{Curve::requested, "requested"},
     {Curve::allocated, "allocated"},
     {Curve::active, "active"},
     {Curve::reserved, "reserved"},
     {Curve::device_used, "device used"}}};

/// All of a log: slices, and the curves, the same figures as the report.
class LogTrace final : public trace::GenericSink<LogTrace> {
  public:
    LogTrace(const Input& input, ProcessTracks& tracks)
        : input_(input), tracks_(tracks), slices_(input, tracks, *this) {}

    template <typename Record>
    void take(const Record& record) {
        in_gap_ = in_gap_ || std::is_same_v<Record, trace::Checkpoint>;
        slices_.on(record);
        count_after(record);
        slices_.end_freed();
        tracks_.out().flush_counters();
    }

    void finish() {
        slices_.finish();
        slices_.close();
    }

  private:
    using Shown = std::array<std::optional<std::uint64_t>, model::curve_count>;

    class WithCurves final : public Slices {
      public:
        WithCurves(const Input& input, ProcessTracks& tracks, LogTrace& whole)
            : Slices(input, tracks), whole_(whole) {}

        using LifetimeSink::figures;
        using LifetimeSink::now;
        using LifetimeSink::within;
        using Slices::end_freed;

      protected:
        void entered() override {
            whole_.count_all();
            Slices::entered();
        }
        void allocated(const Allocation& allocation) override {
            whole_.count(allocation.event.device);
            Slices::allocated(allocation);
        }

      private:
        LogTrace& whole_;
    };

    template <typename Record>
    void count_after(const Record& record) {
        if constexpr (std::is_same_v<Record, trace::Event> ||
                      std::is_same_v<Record, trace::DeviceSample>) {
            count(record.device);
        } else if constexpr (std::is_same_v<Record, trace::ContextLost>) {
            count_all();
        } else if constexpr (std::is_same_v<Record, trace::AggregateState>) {
            if (record.last) {
                in_gap_ = false;
                count_all();
            }
        }
    }

    void count_all() {
        for (std::size_t device = 0; device < slices_.figures().devices().size(); ++device) {
            count(device);
        }
    }

    /// Writes the values that changed.
    void count(std::size_t index) {
        const auto& devices = slices_.figures().devices();
        if (!slices_.within() || in_gap_ || index >= devices.size() || !devices[index] ||
            !input_.wants(index)) {
            return;
        }
        const trace::DeviceTotals& device = *devices[index];
        Shown& shown = shown_[index];
        for (const auto& [curve, name] : counter_names) {
            const auto at = static_cast<std::size_t>(curve);
            const std::uint64_t bytes = device.curves.at(at).current;
            const bool known = curve != Curve::device_used || device.sampled;
            if (known && shown.at(at) != bytes && (bytes != 0 || shown.at(at))) {
                shown.at(at) = bytes;
                tracks_.counter(device.info.label(), name, slices_.now(), bytes);
            }
        }
    }

    const Input& input_;
    ProcessTracks& tracks_;
    std::map<std::size_t, Shown> shown_;
    bool in_gap_ = false;  ///< between a checkpoint and its state: the curves are not known
    WithCurves slices_;
};

/// The curve of a report within a stretch: its value at the start, then each change.
class ReportCurve {
  public:
    ReportCurve(const Stretch& stretch, ProcessTracks& tracks, std::string device, const char* name)
        : stretch_(stretch), tracks_(tracks), device_(std::move(device)), name_(name) {}

    void add(std::uint64_t time_ns, std::uint64_t bytes) {
        if (time_ns < stretch_.from_ns) {
            before_ = bytes;
            return;
        }
        begin();
        if (time_ns <= stretch_.until_ns) {
            tracks_.counter(device_, name_, time_ns, bytes);
        }
    }
    void begin() {
        if (before_) {
            tracks_.counter(device_, name_, stretch_.from_ns, *before_);
            before_.reset();
        }
    }

  private:
    const Stretch& stretch_;
    ProcessTracks& tracks_;
    std::string device_;
    const char* name_;
    std::optional<std::uint64_t> before_;
};

void write_report(const Input& input, ProcessTracks& tracks) {
    const model::Report& report = input.recording.report;
    for (const model::Device& device : report.devices) {
        if (!input.wants(device.index)) {
            continue;
        }
        for (const auto& [curve, name] : counter_names) {
            ReportCurve out(input.stretch, tracks, report::device_label(device), name);
            for (const model::TimelineRow& row : device.timeline.rows) {
                const auto& values = row.curves.at(static_cast<std::size_t>(curve));
                if (!values) {
                    continue;
                }
                // The maximum of a bucket is written at its start, so that no peak is lost.
                out.add(row.begin_ns, values->max);
                std::uint64_t end = 0;
                if (values->last != values->max &&
                    !__builtin_add_overflow(row.begin_ns, device.timeline.bucket_ns, &end)) {
                    out.add(end, values->last);
                }
            }
            out.begin();
        }
    }
    const auto within = [&](std::uint64_t time_ns) {
        return time_ns >= input.stretch.from_ns && time_ns <= input.stretch.until_ns;
    };
    for (const model::Mark& mark : report.marks) {
        if (within(mark.time_ns)) {
            tracks.mark(clean_name(mark.name), mark.time_ns);
        }
    }
    for (const model::Oom& oom : report.ooms) {
        if (input.wants(oom.device) && within(oom.time_ns)) {
            tracks.failure(oom.device, oom.requested_bytes, clean_name(oom.api), oom.time_ns,
                           oom.thread);
        }
    }
    tracks.out().flush_counters();
}

/// The selected device with most allocations; null: none was used.
const model::Device* busiest_device(const Input& input) {
    const model::Device* busiest = nullptr;
    std::uint64_t most = 0;
    for (const model::Device& device : input.recording.report.devices) {
        std::uint64_t count = 0;
        for (const auto& [kind, of_kind] : device.kinds) {
            model::add_to(count, of_kind.count);
        }
        if (count > most && input.wants(device.index)) {
            busiest = &device;
            most = count;
        }
    }
    return busiest;
}

}  // namespace

std::uint64_t PerfettoTrace::unique_pid(std::uint64_t pid) {
    constexpr std::uint64_t largest = 1U << 22;
    const bool usable = pid != 0 && pid <= largest;
    if (usable && pids_.insert(pid).second) {
        return pid;
    }
    const std::uint64_t next = std::max(largest, pids_.empty() ? 0 : *pids_.rbegin()) + 1;
    pids_.insert(next);
    return next;
}

std::string PerfettoTrace::add(const Input& input, std::uint64_t start_ns) {
    ProcessTracks tracks(input, packets_, unique_pid(input.recording.report.process.pid), start_ns);
    if (input.recording.log.empty()) {
        write_report(input, tracks);
        return "A report has no single events: the trace has the curves, marks and failures, and "
               "no allocations. Its event log (.memlog) has them.";
    }
    if (const model::Device* const usual = busiest_device(input)) {
        tracks.usual_device(report::device_label(*usual), {"requested", "allocated", "active"});
    }
    LogTrace log(input, tracks);
    const trace::LogReadResult read =
        report::read_log_ahead(input.recording.log.path, static_cast<trace::RecordSink&>(log));
    log.finish();
    return describe_missing(read, trace::LogPart::everything, input.stretch);
}

Result write_perfetto(const Input& input, model::ByteSink& sink) {
    PerfettoTrace trace(sink, input.recording.report.process.start_wall_ns);
    std::string warning = trace.add(input, 0);
    return {trace.finish(), std::move(warning)};
}

}  // namespace memlab::report::exports
