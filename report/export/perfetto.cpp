// Exports a trace for https://ui.perfetto.dev and chrome://tracing, in Chrome's JSON format.
//
//   counters (ph C)        the curves of each GPU, one event per change
//   async slices (b, e)    allocations from call to free, named after their place; scopes and
//                          ranges of the process. Not ph X: allocations do not nest.
//   instants (i)           marks, and allocations that failed
//
// From a report alone: the curves of its timeline, marks and failures; slices need the events of a
// log. Times are microseconds since the process started, with three decimals.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "report/device_label.hpp"
#include "report/export/formats.hpp"
#include "report/export/history.hpp"
#include "report/export/output.hpp"
#include "report/export/site_choice.hpp"
#include "report/read_ahead.hpp"
#include "report/summary/place_text.hpp"
#include "report/summary/stack_text.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::exports {

using report::Curve;
using report::JsonOutput;

namespace {

constexpr std::array<std::pair<Curve, const char*>, report::curve_count> counter_names = {
    {{Curve::requested, "requested"},
     {Curve::allocated, "allocated"},
     {Curve::active, "active"},
     {Curve::reserved, "reserved"},
     {Curve::device_used, "device used"}}};

/// Writes trace events; shared by both sources, log and report.
class TraceEvents {
  public:
    TraceEvents(const Input& input, report::ByteSink& sink)
        : report_(input.recording.report), json_(sink) {
        json_.begin_object();
        json_.member("displayTimeUnit", "ms");
        json_.key("otherData");
        json_.begin_object();
        json_.member("memlab", clean_name(report_.memlab_version));
        json_.member("executable", clean_name(report_.process.executable));
        json_.member("host", clean_name(report_.process.host));
        json_.end_object();
        json_.new_line();
        json_.key("traceEvents");
        json_.begin_array();
        const std::string program = clean_name(report::base_name(report_.process.executable));
        track("process_name", report_.process.pid, 0, program.empty() ? "?" : program);
        for (const auto& [thread, name] : report_.threads) {
            if (!name.empty()) {
                track("thread_name", report_.process.pid, thread, clean_name(name));
            }
        }
    }

    bool finish() {
        json_.end_array();
        json_.end_object();
        return json_.finish();
    }

    JsonOutput& json() { return json_; }

    void begin(const char* phase, std::string_view name, std::uint64_t time_ns,
               std::uint64_t thread = 0) {
        begin_of(report_.process.pid, phase, name, time_ns, thread);
    }
    void begin_of(std::uint64_t process, const char* phase, std::string_view name,
                  std::uint64_t time_ns, std::uint64_t thread) {
        json_.new_line();
        json_.begin_object();
        json_.member("ph", phase);
        json_.member("name", name.empty() ? "?" : name);
        json_.member("pid", process);
        json_.member("tid", thread);
        json_.key("ts");
        microseconds(time_ns);
    }
    /// Names a process or thread of the trace: `what` is process_name or thread_name.
    void track(const char* what, std::uint64_t process, std::uint64_t thread,
               std::string_view name) {
        begin_of(process, "M", what, 0, thread);
        json_.key("args");
        json_.begin_object();
        json_.member("name", name);
        json_.end_object();
        end();
    }
    void duration(std::uint64_t time_ns) {
        json_.key("dur");
        microseconds(time_ns);
    }
    void end() { json_.end_object(); }

    /// Begins an event of an async slice, which is identified by category and id.
    void begin_async(const char* phase, const char* category, std::string_view id,
                     std::string_view name, std::uint64_t time_ns, std::uint64_t thread) {
        begin(phase, name, time_ns, thread);
        json_.member("cat", category);
        json_.member("id", id);
    }

    void counter(const std::string& device, const char* curve, std::uint64_t time_ns,
                 std::uint64_t bytes) {
        begin("C", device + " " + curve, time_ns);
        json_.key("args");
        json_.begin_object();
        json_.member("bytes", bytes);
        json_.end_object();
        end();
    }

    void mark(std::string_view name, std::uint64_t time_ns, std::uint64_t thread) {
        begin("i", name, time_ns, thread);
        json_.member("cat", "mark");
        json_.member("s", "p");  // scope: process
        end();
    }

    void failure(std::uint64_t device, std::uint64_t requested, std::string_view api,
                 std::uint64_t time_ns, std::uint64_t thread) {
        begin("i", "out of memory: " + report::format_bytes(requested), time_ns, thread);
        json_.member("cat", "oom");
        json_.member("s", "g");  // scope: global
        json_.key("args");
        json_.begin_object();
        json_.member("device", device);
        json_.member("requested_bytes", requested);
        json_.member("api", api);
        json_.end_object();
        end();
    }

  private:
    /// "12.345": exact, while a double would round after weeks.
    void microseconds(std::uint64_t time_ns) {
        std::string digits = std::to_string(time_ns % 1000);
        digits.insert(0, 3 - digits.size(), '0');
        json_.verbatim(std::to_string(time_ns / 1000) + "." + digits);
    }

    const report::Report& report_;
    JsonOutput json_;
};

/// Kernels, copies and fills. Each GPU is a process of the trace, each stream a thread. Slices of a
/// thread must not overlap, so work that overlaps other work of its stream gets additional rows.
class WorkTracks {
  public:
    explicit WorkTracks(TraceEvents& out) : out_(out) {}

    void add(const trace::Work& work, const std::string& mangled) {
        const std::uint64_t process = first_process + work.device;
        if (named_.insert(process).second) {
            out_.track("process_name", process, 0, "GPU " + std::to_string(work.device));
        }
        const std::uint64_t thread = row_of(work, process);
        out_.begin_of(process, "X",
                      work.kind == trace::WorkKind::kernel ? function(work, mangled)
                                                           : trace::name_of(work.kind),
                      work.start_ns, thread);
        out_.duration(work.end_ns - work.start_ns);
        JsonOutput& json = out_.json();
        json.member("cat", trace::name_of(work.kind));
        json.key("args");
        json.begin_object();
        json.member("stream", work.stream);
        json.member("correlation", work.correlation);
        if (work.kind != trace::WorkKind::kernel) {
            json.member("bytes", work.bytes);
        }
        json.end_object();
        out_.end();
    }

  private:
    /// Above all process ids of Linux.
    static constexpr std::uint64_t first_process = (1U << 22) + 1;
    /// Rows per stream; further overlapping work is put on the last one.
    static constexpr std::size_t rows = 8;

    std::uint64_t row_of(const trace::Work& work, std::uint64_t process) {
        std::vector<std::uint64_t>& ends = ends_[{work.device, work.stream}];
        const auto free = std::find_if(ends.begin(), ends.end(),
                                       [&](std::uint64_t end) { return end <= work.start_ns; });
        auto row = static_cast<std::size_t>(free - ends.begin());
        if (row == ends.size() && row < rows) {
            ends.push_back(0);
            out_.track(
                "thread_name", process, std::uint64_t{work.stream} * rows + row,
                "stream " + std::to_string(work.stream) + (row == 0 ? "" : ", beside other work"));
        }
        row = std::min(row, rows - 1);
        ends[row] = std::max(ends[row], work.end_ns);
        return std::uint64_t{work.stream} * rows + row;
    }

    const std::string& function(const trace::Work& work, const std::string& mangled) {
        const auto [at, is_new] = functions_.try_emplace(work.name);
        if (is_new) {
            at->second = clean_name(report::without_anonymous(report::demangle(mangled.c_str())));
        }
        return at->second;
    }

    TraceEvents& out_;
    std::set<std::uint64_t> named_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint64_t>> ends_;
    std::map<std::uint32_t, std::string> functions_;
};

/// Slices, marks and failures of a log.
class Slices final : public History {
  public:
    Slices(const Input& input, TraceEvents& out)
        : input_(input), choice_(input), out_(out), work_(out) {}

    /// Ends the open slices at the end of the recording.
    void close() {
        for_each_live([this](const Allocation& allocation) {
            if (!allocation.pending) {
                end_slice(allocation, nullptr);
            }
        });
        for (auto& [id, names] : open_) {
            while (!names.empty()) {
                end_scope(id, names, 0);
            }
        }
    }

  protected:
    void allocated(const Allocation& allocation) override {
        const trace::Event& event = allocation.event;
        if (!choice_.takes(event, string(event.api))) {
            return;
        }
        out_.begin_async("b", "allocation", id_of(allocation), name_of(event), now(), event.thread);
        JsonOutput& json = out_.json();
        json.key("args");
        json.begin_object();
        json.member("bytes", allocation.size);
        json.member("requested_bytes", event.requested);
        json.member("device", event.device);
        json.member("kind", trace::name_of(event.kind));
        json.member("address", hexadecimal(event.address));
        json.member("api", clean_name(string(event.api)));
        json.member("stack", stack_of(event.stack));
        json.member("thread",
                    clean_name(report::thread_text(input_.recording.report, event.thread)));
        json.end_object();
        out_.end();
    }
    void freed(const Allocation& allocation, const trace::Event* by) override {
        end_slice(allocation, by);
    }
    void completed(const Allocation& /*allocation*/, const trace::Event* /*by*/) override {}

    void noted(const trace::Event& event) override {
        const std::string name = clean_name(string(event.name));
        if (event.type == trace::EventType::mark) {
            out_.mark(name, now(), event.thread);
            return;
        }
        if (event.stream == trace::ended_with_thread && event.type == trace::EventType::scope_end) {
            end_scopes_of(event.thread);
            return;
        }
        // Scopes nest by thread and domain; each range of the process has its own id.
        const std::string id =
            event.address != 0
                ? "range " + std::to_string(event.requested) + " " + hexadecimal(event.address)
                : "thread " + std::to_string(event.thread) + " " + std::to_string(event.requested);
        if (event.type == trace::EventType::scope_begin) {
            open_[id].push_back(name);
            out_.begin_async("b", "scope", id, name, now(), event.thread);
            out_.end();
        } else if (const auto at = open_.find(id); at != open_.end()) {
            end_scope(id, at->second, event.thread);
            if (at->second.empty()) {
                open_.erase(at);
            }
        }
    }

    void failed(const trace::OomEvent& oom) override {
        if (input_.wants(oom.device)) {
            out_.failure(oom.device, oom.requested, clean_name(string(oom.api)), now(), oom.thread);
        }
    }

    void worked(const trace::Work& work) override {
        if (input_.wants(work.device)) {
            work_.add(work, string(work.name));
        }
    }

  private:
    static std::string id_of(const Allocation& allocation) {
        return hexadecimal(allocation.number);
    }

    const std::string& name_of(const trace::Event& event) {
        const auto [at, is_new] = names_.try_emplace({event.stack, event.api});
        if (is_new) {
            const report::Place& place = input_.resolver.place(event.stack);
            std::string name = report::without_anonymous(place.function);
            if (place.recorded) {
                const std::string where = report::location_text(place, "");
                name += name.empty() ? where : " (" + where + ")";
            }
            at->second = clean_name(name.empty() ? string(event.api) : name);
        }
        return at->second;
    }

    /// The functions from the call into CUDA outwards: "cudaMalloc < Layer::forward < main".
    const std::string& stack_of(std::uint32_t stack) {
        const auto [at, is_new] = stacks_.try_emplace(stack);
        if (is_new) {
            constexpr std::size_t max_frames = 32;
            const auto& frames = input_.resolver.frames(stack);
            for (std::size_t i = 0; i < std::min(frames.size(), max_frames); ++i) {
                const std::string text = frames[i].python
                                             ? frames[i].function
                                             : report::without_anonymous(
                                                   report::short_function_name(frames[i].function));
                at->second += (i == 0 ? "" : " < ") +
                              clean_name(text.empty() ? report::base_name(frames[i].module) : text);
            }
        }
        return at->second;
    }

    void end_slice(const Allocation& allocation, const trace::Event* by) {
        const trace::Event& event = allocation.event;
        if (choice_.takes(event, string(event.api))) {
            out_.begin_async("e", "allocation", id_of(allocation), name_of(event), now(),
                             by == nullptr ? event.thread : by->thread);
            out_.end();
        }
    }

    void end_scope(const std::string& id, std::vector<std::string>& names, std::uint32_t thread) {
        out_.begin_async("e", "scope", id, names.back(), now(), thread);
        out_.end();
        names.pop_back();
    }

    void end_scopes_of(std::uint32_t thread) {
        const std::string prefix = "thread " + std::to_string(thread) + " ";
        for (auto at = open_.lower_bound(prefix);
             at != open_.end() && at->first.compare(0, prefix.size(), prefix) == 0;) {
            while (!at->second.empty()) {
                end_scope(at->first, at->second, thread);
            }
            at = open_.erase(at);
        }
    }

    const Input& input_;
    SiteChoice choice_;
    TraceEvents& out_;
    WorkTracks work_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> names_;  ///< by stack and API
    std::map<std::uint32_t, std::string> stacks_;                           ///< by stack
    std::map<std::string, std::vector<std::string>>
        open_;  ///< open scopes by id, the innermost last
};

/// The curves, from the aggregator: the same figures as the report. Written before the slices of
/// the same record.
class Curves final : public trace::GenericSink<Curves> {
  public:
    Curves(const Input& input, TraceEvents& out, Slices& slices)
        : input_(input), out_(out), slices_(slices) {}

    template <typename Record>
    void take(const Record& record) {
        aggregator_.on(record);
        if constexpr (std::is_same_v<Record, trace::Event> ||
                      std::is_same_v<Record, trace::DeviceSample>) {
            count(record.device);
        } else if constexpr (std::is_same_v<Record, trace::ContextLost>) {
            for (std::size_t device = 0; device < aggregator_.devices().size(); ++device) {
                count(device);
            }
        }
        slices_.on(record);
    }

  private:
    using Shown = std::array<std::optional<std::uint64_t>, report::curve_count>;

    void count(std::size_t index) {
        if (index >= aggregator_.devices().size() || !aggregator_.devices()[index] ||
            !input_.wants(index)) {
            return;
        }
        const trace::DeviceTotals& device = *aggregator_.devices()[index];
        Shown& shown = shown_[index];
        for (const auto& [curve, name] : counter_names) {
            const auto at = static_cast<std::size_t>(curve);
            const std::uint64_t bytes = device.curves.at(at).current;
            const bool known = curve != Curve::device_used || device.sampled;
            if (known && shown.at(at) != bytes && (bytes != 0 || shown.at(at))) {
                shown.at(at) = bytes;
                out_.counter(device.info.label(), name, aggregator_.duration_ns(), bytes);
            }
        }
    }

    const Input& input_;
    TraceEvents& out_;
    Slices& slices_;
    trace::Aggregator aggregator_;
    std::map<std::size_t, Shown> shown_;
};

void write_report_curves(const Input& input, TraceEvents& out) {
    const report::Report& report = input.recording.report;
    for (const report::Device& device : report.devices) {
        if (!input.wants(device.index)) {
            continue;
        }
        for (const report::TimelineRow& row : device.timeline.rows) {
            for (const auto& [curve, name] : counter_names) {
                const auto& values = row.curves.at(static_cast<std::size_t>(curve));
                if (!values) {
                    continue;
                }
                // The maximum of a bucket is written at its begin, so that no peak is lost.
                out.counter(report::device_label(device), name, row.begin_ns, values->max);
                std::uint64_t end = 0;
                if (values->last != values->max &&
                    !__builtin_add_overflow(row.begin_ns, device.timeline.bucket_ns, &end)) {
                    out.counter(report::device_label(device), name, end, values->last);
                }
            }
        }
    }
    for (const report::Mark& mark : report.marks) {
        out.mark(clean_name(mark.name), mark.time_ns, 0);
    }
    for (const report::Oom& oom : report.ooms) {
        if (input.wants(oom.device)) {
            out.failure(oom.device, oom.requested_bytes, clean_name(oom.api), oom.time_ns,
                        oom.thread);
        }
    }
}

}  // namespace

Result write_perfetto(const Input& input, report::ByteSink& sink) {
    TraceEvents out(input, sink);
    if (input.recording.log.empty()) {
        write_report_curves(input, out);
        return {out.finish(),
                "A report has no single events: the trace has the curves, marks and failures, and "
                "no allocations. Its event log (.memlog) has them."};
    }
    Slices slices(input, out);
    Curves curves(input, out, slices);
    const trace::LogReadResult read =
        report::read_log_ahead(input.recording.log, static_cast<trace::RecordSink&>(curves));
    slices.close();
    return {out.finish(), report::describe_stretch(read, trace::LogPart::everything)};
}

}  // namespace memlab::exports
