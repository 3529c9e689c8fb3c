#include "report/exports/trace_packets.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace memlab::report::exports {

namespace {

// Numbers of fields, by message.
namespace trace_packet {
constexpr std::uint32_t clock_snapshot = 6;
constexpr std::uint32_t timestamp = 8;
constexpr std::uint32_t sequence_id = 10;
constexpr std::uint32_t track_event = 11;
constexpr std::uint32_t interned_data = 12;
constexpr std::uint32_t sequence_flags = 13;
constexpr std::uint32_t timestamp_clock = 58;
constexpr std::uint32_t defaults = 59;
constexpr std::uint32_t track_descriptor = 60;
}  // namespace trace_packet

namespace track_event {
constexpr std::uint32_t category_iid = 3;
constexpr std::uint32_t debug_annotation = 4;
constexpr std::uint32_t type = 9;
constexpr std::uint32_t name_iid = 10;
constexpr std::uint32_t track = 11;
constexpr std::uint32_t extra_counter_value = 12;
constexpr std::uint32_t counter_value = 30;
constexpr std::uint32_t extra_counter_track = 31;
constexpr std::uint32_t callstack_iid = 56;
constexpr std::uint32_t callstack_weight = 57;
}  // namespace track_event

namespace debug_annotation {
constexpr std::uint32_t name_iid = 1;
constexpr std::uint32_t uint_value = 3;
constexpr std::uint32_t pointer_value = 7;
constexpr std::uint32_t string_iid = 17;
}  // namespace debug_annotation

namespace track_descriptor {
constexpr std::uint32_t uuid = 1;
constexpr std::uint32_t name = 2;
constexpr std::uint32_t process = 3;
constexpr std::uint32_t thread = 4;
constexpr std::uint32_t parent = 5;
constexpr std::uint32_t counter = 8;
}  // namespace track_descriptor

namespace interned_data {
constexpr std::uint32_t categories = 1;
constexpr std::uint32_t event_names = 2;
constexpr std::uint32_t argument_names = 3;
constexpr std::uint32_t functions = 5;
constexpr std::uint32_t frames = 6;
constexpr std::uint32_t callstacks = 7;
constexpr std::uint32_t files = 18;
constexpr std::uint32_t texts = 29;
}  // namespace interned_data

constexpr std::uint64_t state_cleared = 1;
constexpr std::uint64_t needs_state = 2;

// Clocks. Those from 64 on are a sequence's own; this one counts from the packet before.
constexpr std::uint64_t realtime = 1;
constexpr std::uint64_t boottime = 6;
constexpr std::uint64_t incremental = 64;

/// A packet may bring as many counters beside its event.
constexpr std::size_t max_counters = 8;

constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();

Message clock(std::uint64_t id, std::uint64_t time_ns) {
    Message message;
    message.number(1, id);
    message.number(2, time_ns);
    return message;
}

}  // namespace

std::uint64_t TracePackets::Interned::number(std::string_view text, Message& data) {
    if (const auto known = numbers_.find(text); known != numbers_.end()) {
        return known->second;
    }
    const std::uint64_t number = numbers_.size() + 1;
    numbers_.emplace(text, number);
    Message entry;
    entry.number(1, number);
    entry.text(2, text);
    data.message(field_, entry);
    return number;
}

TracePackets::TracePackets(model::ByteSink& sink, std::uint64_t start_wall_ns)
    : out_(sink),
      categories_(interned_data::categories),
      names_(interned_data::event_names),
      argument_names_(interned_data::argument_names),
      texts_(interned_data::texts),
      functions_(interned_data::functions),
      files_(interned_data::files) {
    // Without a service of Perfetto's nobody else says which clock the trace has.
    Message clocks;
    clocks.message(1, clock(boottime, 0));
    if (start_wall_ns != 0 && start_wall_ns <= largest) {
        clocks.message(1, clock(realtime, start_wall_ns));
    }
    clocks.number(2, boottime);  // the trace's
    packet_.message(trace_packet::clock_snapshot, clocks);
    put_packet();
}

void TracePackets::begin_sequence() {
    flush_counters();
    ++sequence_;
    clock_ns_ = 0;
    data_.clear();
    for (Interned* const each :
         {&categories_, &names_, &argument_names_, &texts_, &functions_, &files_}) {
        each->clear();
    }
    frames_.clear();
    callstacks_.clear();
    usual_counters_.clear();

    Message own = clock(incremental, 0);
    own.number(3, 1);  // is_incremental
    Message clocks;
    clocks.message(1, own);
    clocks.message(1, clock(boottime, 0));
    packet_.message(trace_packet::clock_snapshot, clocks);
    packet_.number(trace_packet::sequence_flags, state_cleared);
    put_defaults();
}

void TracePackets::usual_counters(std::vector<std::uint64_t> tracks) {
    usual_counters_ = std::move(tracks);
    put_defaults();
}

void TracePackets::put_defaults() {
    Message of_events;
    for (const std::uint64_t track : usual_counters_) {
        of_events.number(track_event::extra_counter_track, track);
    }
    Message defaults;
    defaults.number(trace_packet::timestamp_clock, incremental);
    if (!of_events.empty()) {
        defaults.message(trace_packet::track_event, of_events);
    }
    packet_.number(trace_packet::sequence_id, sequence_);
    packet_.message(trace_packet::defaults, defaults);
    put_packet();
}

std::uint64_t TracePackets::add(Message& descriptor, std::uint64_t parent, std::string_view name) {
    descriptor.number(track_descriptor::uuid, ++tracks_);
    if (parent != 0) {
        descriptor.number(track_descriptor::parent, parent);
    }
    if (!name.empty()) {
        descriptor.text(track_descriptor::name, name);
    }
    packet_.number(trace_packet::sequence_id, sequence_);
    packet_.message(trace_packet::track_descriptor, descriptor);
    put_packet();
    return tracks_;
}

std::uint64_t TracePackets::add_process(std::uint64_t pid, std::string_view name,
                                        const std::vector<std::string>& labels) {
    Message process;
    process.number(1, pid);
    process.text(6, name);
    for (const std::string& label : labels) {
        process.text(8, label);
    }
    Message descriptor;
    descriptor.message(track_descriptor::process, process);
    return add(descriptor, 0, {});
}

std::uint64_t TracePackets::add_thread(std::uint64_t pid, std::uint64_t thread,
                                       std::string_view name) {
    Message of;
    of.number(1, pid);
    of.number(2, thread);
    if (!name.empty()) {
        of.text(5, name);
    }
    Message descriptor;
    descriptor.message(track_descriptor::thread, of);
    return add(descriptor, 0, {});
}

std::uint64_t TracePackets::add_track(std::uint64_t parent, std::string_view name) {
    Message descriptor;
    return add(descriptor, parent, name);
}

std::uint64_t TracePackets::add_counter(std::uint64_t parent, std::string_view name) {
    Message counter;
    counter.number(3, 3);  // unit: UNIT_SIZE_BYTES
    Message descriptor;
    descriptor.message(track_descriptor::counter, counter);
    return add(descriptor, parent, name);
}

std::uint64_t TracePackets::add_callstack(const std::vector<Frame>& frames) {
    const auto number_of = [this](Numbers& known, Message& fields, std::uint32_t field) {
        const auto [at, is_new] = known.try_emplace(fields.bytes(), known.size() + 1);
        if (is_new) {
            fields.number(1, at->second);
            data_.message(field, fields);
        }
        return at->second;
    };
    Message stack;
    for (const Frame& frame : frames) {
        Message fields;
        fields.number(2, functions_.number(frame.function, data_));
        if (!frame.file.empty()) {
            fields.number(5, files_.number(frame.file, data_));
            if (frame.line > 0) {
                fields.number(6, static_cast<std::uint64_t>(frame.line));
            }
        }
        stack.number(2, number_of(frames_, fields, interned_data::frames));
    }
    return number_of(callstacks_, stack, interned_data::callstacks);
}

void TracePackets::begin_event(Type type, std::uint64_t track, std::uint64_t time_ns) {
    event_ns_ = std::min(time_ns, largest);
    if (event_ns_ != counters_ns_) {
        flush_counters();
    }
    event_.clear();
    event_.number(track_event::type, static_cast<std::uint64_t>(type));
    event_.number(track_event::track, track);
}

void TracePackets::name(std::string_view text) {
    event_.number(track_event::name_iid, names_.number(text, data_));
}

void TracePackets::category(std::string_view text) {
    event_.number(track_event::category_iid, categories_.number(text, data_));
}

void TracePackets::begin_argument(std::string_view name) {
    argument_.clear();
    argument_.number(debug_annotation::name_iid, argument_names_.number(name, data_));
}

void TracePackets::end_argument() {
    event_.message(track_event::debug_annotation, argument_);
}

void TracePackets::argument(std::string_view name, std::uint64_t value) {
    begin_argument(name);
    argument_.number(debug_annotation::uint_value, value);
    end_argument();
}

void TracePackets::argument(std::string_view name, std::string_view text) {
    begin_argument(name);
    argument_.number(debug_annotation::string_iid, texts_.number(text, data_));
    end_argument();
}

void TracePackets::address_argument(std::string_view name, std::uint64_t value) {
    begin_argument(name);
    argument_.number(debug_annotation::pointer_value, value);
    end_argument();
}

void TracePackets::callstack(std::uint64_t number, std::uint64_t weight) {
    event_.number(track_event::callstack_iid, number);
    event_.real(track_event::callstack_weight, static_cast<double>(weight));
}

void TracePackets::end_event() {
    const std::size_t with = std::min(counters_.size(), max_counters);
    const bool usual =
        with <= usual_counters_.size() &&
        std::equal(counters_.begin(), counters_.begin() + static_cast<std::ptrdiff_t>(with),
                   usual_counters_.begin(),
                   [](const Value& each, std::uint64_t track) { return each.track == track; });
    for (std::size_t i = 0; i < with; ++i) {
        if (!usual) {
            event_.number(track_event::extra_counter_track, counters_[i].track);
        }
        event_.number(track_event::extra_counter_value, counters_[i].value);
    }
    counters_.erase(counters_.begin(), counters_.begin() + static_cast<std::ptrdiff_t>(with));
    put_event(event_ns_);
}

void TracePackets::counter(std::uint64_t track, std::uint64_t time_ns, std::uint64_t value) {
    const std::uint64_t time = std::min(time_ns, largest);
    if (time != counters_ns_) {
        flush_counters();
    }
    counters_ns_ = time;
    counters_.push_back({track, std::min(value, largest)});
}

void TracePackets::flush_counters() {
    for (const Value& each : counters_) {
        event_.clear();
        event_.number(track_event::type, static_cast<std::uint64_t>(Type::counter));
        event_.number(track_event::track, each.track);
        event_.number(track_event::counter_value, each.value);
        put_event(counters_ns_);
    }
    counters_.clear();
}

void TracePackets::put_event(std::uint64_t time_ns) {
    // What is recorded after it happened has a time of the past.
    const bool backwards = time_ns < clock_ns_;
    packet_.number(trace_packet::timestamp, backwards ? time_ns : time_ns - clock_ns_);
    if (backwards) {
        packet_.number(trace_packet::timestamp_clock, boottime);
    } else {
        clock_ns_ = time_ns;
    }
    packet_.number(trace_packet::sequence_id, sequence_);
    packet_.number(trace_packet::sequence_flags, needs_state);
    if (!data_.empty()) {
        packet_.message(trace_packet::interned_data, data_);
        data_.clear();
    }
    packet_.message(trace_packet::track_event, event_);
    put_packet();
}

void TracePackets::put_packet() {
    head_.clear();
    head_.text(1, packet_.bytes());  // Trace.packet
    out_ << head_.bytes();
    packet_.clear();
}

bool TracePackets::finish() {
    flush_counters();
    return out_.finish();
}

}  // namespace memlab::report::exports
