#include "trace/json/json_writer.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "trace/json/entry_writer.hpp"
#include "trace/json/json_members.hpp"
#include "trace/json/json_output.hpp"
#include "trace/json/oom_explanation.hpp"
#include "trace/json/report_tables.hpp"

namespace memlab::report {
namespace {

using trace::Aggregator;

// ---- the process

void put_padded(char*& to, std::uint64_t value, int digits) {
    for (int i = digits - 1; i >= 0; --i) {
        to[i] = static_cast<char>('0' + value % 10);
        value /= 10;
    }
    to += digits;
}

/// "2026-01-31T12:34:56.123456Z". Not by gmtime and strftime, which use time zones and locales.
void start_time(JsonOutput& json, std::uint64_t wall_ns) {
    constexpr std::uint64_t ns_per_second = 1000000000;
    constexpr std::uint64_t seconds_per_day = 86400;
    const std::uint64_t seconds = wall_ns / ns_per_second;
    const std::uint64_t second_of_day = seconds % seconds_per_day;
    // Days to a date, Howard Hinnant's civil_from_days: years begin in March, eras have 400 years.
    const std::uint64_t days = seconds / seconds_per_day + 719468;
    const std::uint64_t era = days / 146097;
    const std::uint64_t day_of_era = days % 146097;
    const std::uint64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const std::uint64_t day_of_year =
        day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const std::uint64_t shifted_month = (5 * day_of_year + 2) / 153;
    const std::uint64_t day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    const std::uint64_t month = shifted_month < 10 ? shifted_month + 3 : shifted_month - 9;
    const std::uint64_t year = era * 400 + year_of_era + (month <= 2 ? 1 : 0);

    char text[32];
    char* at = text;
    put_padded(at, year, 4);
    *at++ = '-';
    put_padded(at, month, 2);
    *at++ = '-';
    put_padded(at, day, 2);
    *at++ = 'T';
    put_padded(at, second_of_day / 3600, 2);
    *at++ = ':';
    put_padded(at, second_of_day / 60 % 60, 2);
    *at++ = ':';
    put_padded(at, second_of_day % 60, 2);
    *at++ = '.';
    put_padded(at, wall_ns % ns_per_second / 1000, 6);
    *at++ = 'Z';
    json.member("start_iso8601", std::string_view(text, static_cast<std::size_t>(at - text)));
}

const char* name_of(trace::Ended ended) {
    switch (ended) {
        case trace::Ended::exit:
            return "exit";
        case trace::Ended::quick_exit:
            return "quick_exit";
        case trace::Ended::cut_off:
            return "cut off";
    }
    return "cut off";
}

void process(JsonOutput& json, const Aggregator& from, Moment moment) {
    const trace::ProcessInfo& info = from.process();
    json.key("process");
    json.begin_object();
    json.member("pid", info.pid);
    json.member("parent_pid", info.parent_pid);
    json.member("executable", info.executable);
    json.key("arguments");
    json.begin_array();
    for (const std::string& argument : info.arguments) {
        json.string(argument);
    }
    json.end_array();
    json.member("host", info.host);
    json.member("start_wall_ns", info.start_wall_ns);
    start_time(json, info.start_wall_ns);
    json.member("duration_ns", from.duration_ns());
    json.member("ended", moment == Moment::running ? "running" : name_of(from.ended()));
    if (moment != Moment::running && from.end().exit_code != trace::End::unknown_code) {
        json.member("exit_code", from.end().exit_code);
    }
    json.member("started_late", info.started_late);
    json.key("ranks");
    json.begin_object();
    for (std::size_t i = 0; i < info.ranks.size(); ++i) {
        const auto& name = info.ranks[i].first;
        const auto same = [&name](const auto& rank) { return rank.first == name; };
        const auto position = info.ranks.begin() + static_cast<std::ptrdiff_t>(i);
        if (std::find_if(info.ranks.begin(), position, same) == position) {
            json.member(name, info.ranks[i].second);
        }
    }
    json.end_object();
    json.end_object();
}
// ---- the tables

/// The program's names for a site's memory; absent if there are none.
void memory_labels(JsonOutput& json, const std::vector<MemoryLabel>& labels) {
    if (labels.empty()) {
        return;
    }
    json.key("labels");
    json.begin_array();
    for (std::size_t i = 0; i < std::min<std::size_t>(max_site_labels, labels.size()); ++i) {
        json.begin_object();
        json.member("name", labels[i].name);
        json.member("count", labels[i].count);
        json.member("bytes", labels[i].bytes);
        json.end_object();
    }
    json.end_array();
}

/// `entry(i)` is the i-th one of `count`.
template <typename Entry>
void table(JsonOutput& json, const char* name, std::size_t count, Entry entry) {
    json.key(name);
    json.begin_array();
    for (std::size_t i = 0; i < count; ++i) {
        json.new_line();
        EntryWriter(json, i).object(entry(i));
    }
    json.end_array();
}

/// Absent if there are none; the first one is "no Python frame".
void python_frames(JsonOutput& json, const Aggregator& from) {
    if (from.python_frames().size() == 1) {
        return;
    }
    json.key("python_frames");
    json.begin_array();
    for (const trace::PythonFrameDef& frame : from.python_frames()) {
        json.new_line();
        json.begin_object();
        json.member("function", from.string(frame.function));
        json.member("file", from.string(frame.file));
        json.member("line", frame.line);
        json.member("first_line", frame.first_line);
        json.end_object();
    }
    json.end_array();
    json.new_line();
}

void frames_and_modules(JsonOutput& json, const Aggregator& from) {
    json.key("frames");
    json.begin_array();
    for (const trace::Frame& frame : from.frames()) {
        json.new_line();
        json.begin_object();
        json.member("module", frame.module);
        json.member("address", frame.address);
        if (frame.python != 0) {
            json.member("python", frame.python);
        }
        json.end_object();
    }
    json.end_array();
    json.new_line();
    python_frames(json, from);
    json.key("modules");
    json.begin_array();
    for (const trace::ModuleDef& module : from.modules()) {
        json.new_line();
        json.begin_object();
        json.member("path", module.path);
        json.member("build_id", module.build_id);
        json.member("bias", module.bias);
        json.member("start", module.start);
        json.member("end", module.end);
        json.end_object();
    }
    json.end_array();
}

void contexts(JsonOutput& json, const Aggregator& from) {
    json.key("contexts");
    json.begin_array();
    for (const trace::ContextTotals& context : from.contexts()) {
        json.begin_object();
        json.member("id", context.info.id);
        json.member("device", context.info.device);
        json.member("primary", context.info.primary);
        json.key("lost_time_ns");
        if (context.lost) {
            json.number(context.lost_time_ns);
        } else {
            json.null();
        }
        json.end_object();
    }
    json.end_array();
}

/// Absent if no thread has a name.
void threads(JsonOutput& json, const Aggregator& from) {
    if (from.thread_names().empty()) {
        return;
    }
    json.new_line();
    json.key("threads");
    json.begin_array();
    for (const auto& [thread, name] : from.thread_names()) {
        json.begin_object();
        json.member("id", thread);
        json.member("name", from.string(name));
        json.end_object();
    }
    json.end_array();
}

void ooms(JsonOutput& json, const Aggregator& from) {
    json.key("ooms");
    json.begin_array();
    for (const trace::OomTotals& oom : from.ooms()) {
        const trace::OomEvent& event = oom.event;
        json.new_line();
        json.begin_object();
        json.member("time_ns", event.time_ns);
        json.member("device", event.device);
        json.member("context", event.context);
        json.member("thread", event.thread);
        json.member("api", from.string(event.api));
        json.member("stack", event.stack);
        json.member("kind", trace::name_of(event.kind));
        json.member("requested_bytes", event.requested);
        json.member("device_free_bytes", event.device_free);
        json.member("device_total_bytes", event.device_total);
        write_limit(json, event.limit);
        json.member("largest_free_block_bytes", event.largest_free_block);
        json.member("error", event.error);
        json.key("current");
        json.begin_object();
        write_current(json, oom.current);
        json.end_object();
        json.key("pool");
        json.begin_object();
        json.member("reserved_bytes", oom.pool.reserved);
        json.member("active_bytes", oom.pool.active);
        json.member("allocated_bytes", oom.pool.allocated);
        json.member("largest_free_bytes", oom.pool.largest_free);
        json.member("large_free_bytes", oom.pool.large_free);
        json.end_object();
        json.key("kinds");
        json.begin_object();
        for (int kind = 0; kind < trace::memory_kind_count; ++kind) {
            if (oom.kinds[static_cast<std::size_t>(kind)] != 0) {
                json.member(trace::name_of(static_cast<trace::MemoryKind>(kind)),
                            oom.kinds[static_cast<std::size_t>(kind)]);
            }
        }
        json.end_object();
        json.key("holders");
        json.begin_object();
        const OomFigures figures = oom_figures(from, oom);
        write_composition(json, oom.holders, [&](std::size_t site) {
            json.member("allocations", oom.allocations[site]);
            memory_labels(json, figures.labels[site]);
        });
        json.end_object();
        json.key("explanation");
        json.begin_array();
        for (const std::string& sentence : explain_oom(figures)) {
            json.string(sentence);
        }
        json.end_array();
        json.end_object();
    }
    json.end_array();
    json.member("oom_count", from.oom_count());
}

void marks(JsonOutput& json, const Aggregator& from) {
    json.key("marks");
    json.begin_array();
    for (const trace::MarkTotals& mark : from.marks()) {
        json.new_line();
        json.begin_object();
        json.member("type", trace::name_of(mark.type));
        json.member("name", from.string(mark.name));
        json.member("time_ns", mark.time_ns);
        json.member("thread", mark.thread);
        json.key("devices");
        json.begin_array();
        for (const trace::MarkedDevice& device : mark.devices) {
            json.begin_object();
            json.member("device", device.device);
            write_current(json, device.current);
            json.member("allocated_peak_bytes", device.allocated_peak);
            json.member("reserved_peak_bytes", device.reserved_peak);
            json.end_object();
        }
        json.end_array();
        json.end_object();
    }
    json.end_array();
    json.member("mark_count", from.mark_count());
}

void missed(JsonOutput& json, const Aggregator& from) {
    json.key("missed");
    json.begin_array();
    for (const trace::MissedTotals& missed : from.missed()) {
        json.new_line();
        json.begin_object();
        json.member("reason", from.string(missed.reason));
        json.member("count", missed.count);
        json.member("bytes", missed.bytes);
        json.member("first_time_ns", missed.first_time_ns);
        json.end_object();
    }
    json.end_array();
}

/// Always present, so that "nothing was found" differs from "nothing was checked".
void coverage(JsonOutput& json, const Aggregator& from) {
    const bool recorded = from.coverage().has_value();
    const trace::Coverage none;
    const trace::Coverage& coverage = recorded ? *from.coverage() : none;
    json.key("coverage");
    json.begin_object();
    json.member("audited", coverage.audited);
    json.member("because", recorded ? from.string(coverage.because)
                                    : "Nobody asked for an audit; MEMLAB_AUDIT=on does.");
    json.member("cupti", from.string(coverage.cupti));
    json.member("driver_count", coverage.count);
    json.member("driver_bytes", coverage.bytes);
    json.member("lost_records", coverage.lost);
    json.member("bypassed_count", from.bypassed_count());
    json.member("bypassed_bytes", from.bypassed_bytes());
    json.key("bypassed");
    json.begin_array();
    for (const trace::BypassTotals& bypass : from.bypasses()) {
        json.new_line();
        json.begin_object();
        json.member("device", bypass.device);
        json.member("kind", trace::name_of(bypass.kind));
        json.member("api", from.string(bypass.api));
        json.member("stack", bypass.stack);
        json.member("count", bypass.count);
        json.member("bytes", bypass.bytes);
        json.member("first_time_ns", bypass.first_time_ns);
        json.end_object();
    }
    json.end_array();
    json.end_object();
}

void integrity_and_log(JsonOutput& json, const Aggregator& from) {
    const trace::Integrity& integrity = from.integrity();
    json.key("integrity");
    json.begin_object();
    json.member("unmatched_frees", integrity.unmatched_frees);
    json.member("unmatched_segment_frees", integrity.unmatched_segment_frees);
    json.member("overwritten_allocations", integrity.overwritten_allocations);
    json.member("overwritten_segments", integrity.overwritten_segments);
    json.member("incomplete", integrity.incomplete);
    json.end_object();
    json.new_line();
    json.key("log");
    json.begin_object();
    json.member("events", from.event_count());
    json.member("dropped", from.end().events_dropped);
    json.member("stopped_because", from.end().log_stopped_because);
    json.end_object();
}

}  // namespace

bool write_json(ByteSink& sink, const Aggregator& from, Moment moment, LargeTables large) {
    JsonOutput json(sink);
    json.begin_object();
    json.member("format", "memlab-report");
    json.member("version", 1);
    json.member("memlab_version", from.process().memlab_version);
    json.new_line();
    process(json, from, moment);
    json.new_line();
    json.key("options");
    json.begin_object();
    for (const trace::OptionValue& option : from.options()) {
        json.member(option.name, option.value);
    }
    json.end_object();
    json.new_line();
    json.key("devices");
    json.begin_array();
    for (const auto& each : from.devices()) {
        if (each != nullptr) {
            json.new_line();
            write_device(json, from, *each);
        }
    }
    json.end_array();
    json.new_line();
    contexts(json, from);
    threads(json, from);
    json.new_line();
    const ReportTables entries(from);
    const bool written = large == LargeTables::written;
    table(json, "sites", written ? entries.site_count() : 0,
          [&](std::size_t i) { return entries.site(i); });
    json.new_line();
    table(json, "stacks", written ? entries.stack_count() : 0,
          [&](std::size_t i) { return entries.stack(i); });
    json.new_line();
    frames_and_modules(json, from);
    json.new_line();
    ooms(json, from);
    json.new_line();
    marks(json, from);
    write_scopes(json, from);
    json.new_line();
    missed(json, from);
    json.new_line();
    coverage(json, from);
    json.new_line();
    integrity_and_log(json, from);
    json.end_object();
    return json.finish();
}

std::string report_to_string(const trace::Aggregator& aggregator, Moment moment,
                             LargeTables large) {
    StringSink sink;
    write_json(sink, aggregator, moment, large);
    return std::move(sink.text);
}

}  // namespace memlab::report
