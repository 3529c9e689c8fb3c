#include "trace/record_codec.hpp"

#include <algorithm>
#include <limits>

#include "trace/log_format.hpp"

namespace memlab::trace {
namespace {

using format::Tag;

constexpr std::uint64_t zigzag(std::uint64_t difference) {
    return (difference << 1) ^ (0 - (difference >> 63));
}

constexpr std::uint64_t unzigzag(std::uint64_t value) {
    return (value >> 1) ^ (0 - (value & 1));
}

constexpr int origin_shift = 4;

std::uint8_t* put_number(std::uint8_t* to, std::uint64_t value) {
    while (value >= 0x80) {
        *to++ = static_cast<std::uint8_t>(value | 0x80);
        value >>= 7;
    }
    *to++ = static_cast<std::uint8_t>(value);
    return to;
}

std::uint8_t* put_difference(std::uint8_t* to, std::uint64_t value, std::uint64_t base) {
    return put_number(to, zigzag(value - base));
}

/// What requested and size are when an event does not say: as they were at its place, or, where
/// nothing is known of that, the last event's of its type and all of it. `size` depends on
/// `requested`, so it is a question of its own.
std::uint64_t size_unsaid(const CodecPlace* known, bool has_requested, std::uint64_t requested) {
    return known != nullptr && !has_requested ? known->size : requested;
}

void remember(CodecState& state, const Event& event) {
    if (event.address != 0) {
        state.address = event.address;
        state.places[CodecState::place_of(event.address)] = {event.address, event.requested,
                                                             event.size};
    }
    state.last[static_cast<std::size_t>(event.type)] = event;
}

}  // namespace

// ---- encoding

[[gnu::hot]] std::uint8_t* encode_fields(const Event& event, CodecState& state, std::uint8_t* to) {
    const auto type = static_cast<std::size_t>(event.type);
    const Event& last = state.last[type];
    const std::size_t place = CodecState::place_of(event.address);
    const CodecPlace* known = nullptr;
    std::uint32_t fields = 0;
    if (event.address != 0) {
        if (state.places[place].address == event.address) {
            known = &state.places[place];
            fields =
                event.address == state.address ? format::at_latest_place : format::at_known_place;
        } else {
            fields = format::at_new_place;
        }
    }
    const auto note = [&fields](bool differs, std::uint32_t field) {
        fields |= differs ? field : 0;
    };
    const bool has_requested =
        event.requested != (known != nullptr ? known->requested : last.requested);
    const std::uint64_t unsaid = size_unsaid(known, has_requested, event.requested);
    note(has_requested, format::has_requested);
    note(event.size != unsaid, format::has_size);
    note(event.stack != last.stack, format::has_stack);
    note(event.thread != last.thread, format::has_thread);
    note(event.stream != last.stream, format::has_stream);
    note(event.api != last.api, format::has_api);
    note(event.kind != last.kind || event.origin != last.origin, format::has_kind_and_origin);
    note(event.device != last.device, format::has_device);
    note(event.context != last.context, format::has_context);
    note(event.name != last.name, format::has_name);
    note(event.correlation != last.correlation, format::has_correlation);

    to = put_number(to, fields);
    to = put_difference(to, event.time_ns, state.time_ns);
    state.time_ns = event.time_ns;
    if ((fields & format::at_known_place) != 0) {
        *to++ = static_cast<std::uint8_t>(place);
    }
    if ((fields & format::at_new_place) != 0) {
        to = put_difference(to, event.address, state.address);
    }
    if ((fields & format::has_requested) != 0) {
        to = put_number(to, event.requested);
    }
    if ((fields & format::has_size) != 0) {
        to = put_difference(to, event.size, event.requested);
    }
    if ((fields & format::has_stack) != 0) {
        to = put_number(to, event.stack);
    }
    if (fields >= format::has_thread) {
        if ((fields & format::has_thread) != 0) {
            to = put_number(to, event.thread);
        }
        if ((fields & format::has_stream) != 0) {
            to = put_number(to, event.stream);
        }
        if ((fields & format::has_api) != 0) {
            to = put_number(to, event.api);
        }
        if ((fields & format::has_kind_and_origin) != 0) {
            *to++ = static_cast<std::uint8_t>(static_cast<unsigned>(event.kind) |
                                              static_cast<unsigned>(event.origin) << origin_shift);
        }
        if ((fields & format::has_device) != 0) {
            to = put_number(to, event.device);
        }
        if ((fields & format::has_context) != 0) {
            to = put_number(to, event.context);
        }
        if ((fields & format::has_name) != 0) {
            to = put_number(to, event.name);
        }
        if ((fields & format::has_correlation) != 0) {
            to = put_difference(to, event.correlation, last.correlation);
        }
    }
    remember(state, event);
    return to;
}

void RecordEncoder::number(std::uint64_t value) {
    while (value >= 0x80) {
        byte(static_cast<std::uint8_t>(value | 0x80));
        value >>= 7;
    }
    byte(static_cast<std::uint8_t>(value));
}

void RecordEncoder::difference(std::uint64_t value, std::uint64_t base) {
    number(zigzag(value - base));
}

void RecordEncoder::text(const std::string& value) {
    number(value.size());
    bytes_.insert(bytes_.end(), value.begin(), value.end());
}

void RecordEncoder::time(std::uint64_t value) {
    difference(value, state_.time_ns);
    state_.time_ns = value;
}

template <typename Fields>
void RecordEncoder::sized(Fields fields) {
    std::vector<std::uint8_t> bytes;
    RecordEncoder encoder(bytes, state_);
    fields(encoder);
    number(bytes.size());
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void RecordEncoder::encode(const ProcessInfo& record) {
    byte(static_cast<std::uint8_t>(Tag::process_info));
    number(record.pid);
    number(record.parent_pid);
    text(record.executable);
    number(record.arguments.size());
    for (const std::string& argument : record.arguments) {
        text(argument);
    }
    text(record.host);
    text(record.memlab_version);
    number(record.start_wall_ns);
    number(record.start_monotonic_ns);
    byte(record.started_late ? 1 : 0);
    number(record.ranks.size());
    for (const auto& [name, value] : record.ranks) {
        text(name);
        text(value);
    }
}

void RecordEncoder::encode(const OptionValue& record) {
    byte(static_cast<std::uint8_t>(Tag::option_value));
    text(record.name);
    text(record.value);
}

void RecordEncoder::encode(const DeviceInfo& record) {
    byte(static_cast<std::uint8_t>(Tag::device_info));
    sized([&](RecordEncoder& fields) {
        fields.number(record.index);
        fields.text(record.name);
        fields.text(record.uuid);
        fields.number(record.total_bytes);
        fields.number(static_cast<std::uint32_t>(record.driver_version));
        fields.number(record.limit_bytes);
    });
}

void RecordEncoder::encode(const ContextInfo& record) {
    byte(static_cast<std::uint8_t>(Tag::context_info));
    number(record.id);
    number(record.device);
    byte(record.primary ? 1 : 0);
}

void RecordEncoder::encode(const ContextLost& record) {
    byte(static_cast<std::uint8_t>(Tag::context_lost));
    time(record.time_ns);
    number(record.context);
}

void RecordEncoder::encode(const ThreadInfo& record) {
    byte(static_cast<std::uint8_t>(Tag::thread_info));
    sized([&](RecordEncoder& fields) {
        fields.number(record.thread);
        fields.number(record.name);
    });
}

void RecordEncoder::encode(const StringDef& record) {
    byte(static_cast<std::uint8_t>(Tag::string_def));
    number(record.id);
    text(record.text);
}

void RecordEncoder::encode(const ModuleDef& record) {
    byte(static_cast<std::uint8_t>(Tag::module_def));
    number(record.id);
    text(record.path);
    text(record.build_id);
    number(record.bias);
    number(record.start);
    number(record.end);
}

void RecordEncoder::encode(const PythonFrameDef& record) {
    byte(static_cast<std::uint8_t>(Tag::python_frame_def));
    sized([&](RecordEncoder& fields) {
        fields.number(record.id);
        fields.number(record.function);
        fields.number(record.file);
        fields.number(record.line);
        fields.number(record.first_line);
    });
}

void RecordEncoder::encode(const StackDef& record) {
    if (std::ranges::any_of(record.frames, [](const Frame& frame) { return frame.python != 0; })) {
        byte(static_cast<std::uint8_t>(Tag::mixed_stack_def));
        sized([&](RecordEncoder& fields) {
            fields.number(record.id);
            fields.byte(record.truncated ? 1 : 0);
            fields.number(record.frames.size());
            for (const Frame& frame : record.frames) {
                if (frame.python != 0) {
                    fields.number(std::uint64_t{frame.python} << 1 | 1);
                } else {
                    fields.number(std::uint64_t{frame.module} << 1);
                    fields.number(frame.address);
                }
            }
        });
        return;
    }
    byte(static_cast<std::uint8_t>(Tag::stack_def));
    number(record.id);
    byte(record.truncated ? 1 : 0);
    number(record.frames.size());
    for (const Frame& frame : record.frames) {
        number(frame.module);
        number(frame.address);
    }
}

void RecordEncoder::encode(const OomEvent& record) {
    byte(static_cast<std::uint8_t>(Tag::oom_event));
    sized([&](RecordEncoder& fields) {
        fields.time(record.time_ns);
        fields.number(record.device);
        fields.number(record.context);
        fields.number(record.thread);
        fields.number(record.api);
        fields.number(record.stack);
        fields.byte(static_cast<std::uint8_t>(record.kind));
        fields.number(record.requested);
        fields.number(record.device_free);
        fields.number(record.device_total);
        fields.number(record.largest_free_block);
        fields.number(static_cast<std::uint32_t>(record.error));
        fields.number(record.limit);
    });
}

void RecordEncoder::encode(const DeviceSample& record) {
    byte(static_cast<std::uint8_t>(Tag::device_sample));
    time(record.time_ns);
    number(record.device);
    number(record.used);
    number(record.total);
}

void RecordEncoder::encode(const Missed& record) {
    byte(static_cast<std::uint8_t>(Tag::missed));
    time(record.time_ns);
    number(record.reason);
    number(record.count);
    number(record.bytes);
}

void RecordEncoder::encode(const Work& record) {
    Work& last = state_.work;
    byte(static_cast<std::uint8_t>(Tag::work));
    byte(static_cast<std::uint8_t>(record.kind));
    number(record.name);
    number(record.device);
    number(record.stream);
    difference(record.correlation, last.correlation);
    difference(record.start_ns, last.end_ns);
    number(record.end_ns - record.start_ns);
    if (record.kind != WorkKind::kernel) {
        number(record.bytes);
    }
    last = record;
}

void RecordEncoder::encode(const Bypass& record) {
    byte(static_cast<std::uint8_t>(Tag::bypass));
    sized([&](RecordEncoder& fields) {
        fields.time(record.time_ns);
        fields.byte(static_cast<std::uint8_t>(record.kind));
        fields.number(record.device);
        fields.number(record.api);
        fields.number(record.stack);
        fields.number(record.address);
        fields.number(record.bytes);
    });
}

void RecordEncoder::encode(const Coverage& record) {
    byte(static_cast<std::uint8_t>(Tag::coverage));
    sized([&](RecordEncoder& fields) {
        fields.time(record.time_ns);
        fields.byte(record.audited ? 1 : 0);
        fields.number(record.cupti);
        fields.number(record.because);
        fields.number(record.count);
        fields.number(record.bytes);
        fields.number(record.lost);
    });
}

void RecordEncoder::encode(const LogStopped& record) {
    byte(static_cast<std::uint8_t>(Tag::log_stopped));
    sized([&](RecordEncoder& fields) {
        fields.time(record.time_ns);
        fields.text(record.reason);
        for (unsigned shift = 0; shift < 64; shift += 8) {
            fields.byte(static_cast<std::uint8_t>(record.events_dropped >> shift));
        }
    });
}

void RecordEncoder::encode(const End& record) {
    const auto plain = [&record](RecordEncoder& fields) {
        fields.time(record.time_ns);
        fields.byte(static_cast<std::uint8_t>(record.kind));
        fields.number(record.events_dropped);
        fields.text(record.log_stopped_because);
    };
    if (record.exit_code == End::unknown_code) {
        byte(static_cast<std::uint8_t>(Tag::end));
        plain(*this);
        return;
    }
    byte(static_cast<std::uint8_t>(Tag::end_with_code));
    sized([&](RecordEncoder& fields) {
        plain(fields);
        fields.byte(static_cast<std::uint8_t>(record.exit_code));
    });
}

// ---- decoding

void RecordDecoder::fail(DecodeStatus status) {
    if (status_ == DecodeStatus::ok) {
        status_ = status;
    }
    at_ = end_;
}

bool RecordDecoder::byte(std::uint8_t& value) {
    if (at_ == end_) {
        fail(DecodeStatus::truncated);
        return false;
    }
    value = *at_++;
    return true;
}

void RecordDecoder::number(std::uint64_t& value) {
    std::uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        std::uint8_t part = 0;
        if (!byte(part)) {
            return;
        }
        if (shift == 63 && part > 1) {
            break;
        }
        result |= static_cast<std::uint64_t>(part & 0x7f) << shift;
        if ((part & 0x80) == 0) {
            value = result;
            return;
        }
    }
    fail(DecodeStatus::bad);
}

void RecordDecoder::number(std::uint32_t& value) {
    std::uint64_t wide = 0;
    number(wide);
    if (wide > std::numeric_limits<std::uint32_t>::max()) {
        fail(DecodeStatus::bad);
        return;
    }
    value = static_cast<std::uint32_t>(wide);
}

void RecordDecoder::number(std::int32_t& value) {
    std::uint32_t bits = 0;
    number(bits);
    value = static_cast<std::int32_t>(bits);
}

void RecordDecoder::difference(std::uint64_t& value, std::uint64_t base) {
    std::uint64_t coded = 0;
    number(coded);
    value = base + unzigzag(coded);
}

void RecordDecoder::difference(std::uint32_t& value, std::uint32_t base) {
    std::uint64_t wide = 0;
    difference(wide, base);
    value = static_cast<std::uint32_t>(wide);
}

void RecordDecoder::text(std::string& value) {
    const std::size_t size = count(1);
    value.assign(reinterpret_cast<const char*>(at_), size);
    at_ += size;
}

void RecordDecoder::flag(bool& value) {
    std::uint8_t bits = 0;
    if (byte(bits) && bits > 1) {
        fail(DecodeStatus::bad);
    }
    value = bits != 0;
}

void RecordDecoder::kind(MemoryKind& value) {
    std::uint8_t bits = 0;
    if (byte(bits) && bits >= memory_kind_count) {
        fail(DecodeStatus::bad);
        return;
    }
    value = static_cast<MemoryKind>(bits);
}

/// A number of items of at least `smallest_item` bytes each: what cannot fit in the rest of the
/// data is cut off, so that a wild count never allocates.
std::size_t RecordDecoder::count(std::size_t smallest_item) {
    std::uint64_t value = 0;
    number(value);
    if (value > format::max_record) {
        fail(DecodeStatus::bad);
        return 0;
    }
    if (value * smallest_item > left()) {
        fail(DecodeStatus::truncated);
        return 0;
    }
    return status_ == DecodeStatus::ok ? static_cast<std::size_t>(value) : 0;
}

/// What follows the fields that are known is a later version's.
template <typename Fields>
void RecordDecoder::sized(Fields fields) {
    const std::size_t size = count(1);
    if (status_ != DecodeStatus::ok) {
        return;
    }
    const std::uint8_t* const all = end_;
    end_ = at_ + size;
    const std::uint8_t* const record_end = end_;
    fields();
    if (status_ == DecodeStatus::truncated) {
        status_ = DecodeStatus::bad;  // all of it is here: its own length is wrong
    }
    at_ = record_end;
    end_ = all;
}

DecodeStatus RecordDecoder::decode(ProcessInfo& record) {
    number(record.pid);
    number(record.parent_pid);
    text(record.executable);
    record.arguments.resize(count(1));
    for (std::string& argument : record.arguments) {
        text(argument);
    }
    text(record.host);
    text(record.memlab_version);
    number(record.start_wall_ns);
    number(record.start_monotonic_ns);
    flag(record.started_late);
    record.ranks.resize(count(2));
    for (auto& [name, value] : record.ranks) {
        text(name);
        text(value);
    }
    return status_;
}

DecodeStatus RecordDecoder::decode(OptionValue& record) {
    text(record.name);
    text(record.value);
    return status_;
}

DecodeStatus RecordDecoder::decode_plain(DeviceInfo& record) {
    number(record.index);
    text(record.name);
    text(record.uuid);
    number(record.total_bytes);
    number(record.driver_version);
    return status_;
}

DecodeStatus RecordDecoder::decode(DeviceInfo& record) {
    sized([&] {
        decode_plain(record);
        number(record.limit_bytes);
    });
    return status_;
}

DecodeStatus RecordDecoder::decode(ContextInfo& record) {
    number(record.id);
    number(record.device);
    flag(record.primary);
    return status_;
}

DecodeStatus RecordDecoder::decode(ContextLost& record, CodecState& state) {
    difference(record.time_ns, state.time_ns);
    number(record.context);
    return end_at(record.time_ns, state);
}

DecodeStatus RecordDecoder::decode(ThreadInfo& record) {
    sized([&] {
        number(record.thread);
        number(record.name);
    });
    return status_;
}

DecodeStatus RecordDecoder::decode(StringDef& record) {
    number(record.id);
    text(record.text);
    return status_;
}

DecodeStatus RecordDecoder::decode(ModuleDef& record) {
    number(record.id);
    text(record.path);
    text(record.build_id);
    number(record.bias);
    number(record.start);
    number(record.end);
    return status_;
}

/// Ends a record that has a time: that of the next one is a difference from it.
DecodeStatus RecordDecoder::end_at(std::uint64_t time_ns, CodecState& state) {
    if (status_ == DecodeStatus::ok) {
        state.time_ns = time_ns;
    }
    return status_;
}

DecodeStatus RecordDecoder::decode(PythonFrameDef& record) {
    sized([&] {
        number(record.id);
        number(record.function);
        number(record.file);
        number(record.line);
        number(record.first_line);
    });
    return status_;
}

DecodeStatus RecordDecoder::decode_native(StackDef& record) {
    number(record.id);
    flag(record.truncated);
    record.frames.resize(count(2));
    for (Frame& frame : record.frames) {
        number(frame.module);
        number(frame.address);
    }
    return status_;
}

DecodeStatus RecordDecoder::decode_mixed(StackDef& record) {
    sized([&] {
        number(record.id);
        flag(record.truncated);
        record.frames.resize(count(1));
        for (Frame& frame : record.frames) {
            std::uint64_t which = 0;
            number(which);
            if ((which >> 1) > std::numeric_limits<std::uint32_t>::max()) {
                fail(DecodeStatus::bad);
            } else if ((which & 1) != 0) {
                frame.python = static_cast<std::uint32_t>(which >> 1);
            } else {
                frame.module = static_cast<std::uint32_t>(which >> 1);
                number(frame.address);
            }
        }
    });
    return status_;
}

/// The fields from the size on, which no place says anything about.
void RecordDecoder::rest_of_event(std::uint32_t fields, Event& record) {
    if ((fields & format::has_size) != 0) {
        difference(record.size, record.requested);
    }
    if ((fields & format::has_stack) != 0) {
        number(record.stack);
    }
    if ((fields & format::has_thread) != 0) {
        number(record.thread);
    }
    if ((fields & format::has_stream) != 0) {
        number(record.stream);
    }
    if ((fields & format::has_api) != 0) {
        number(record.api);
    }
    if ((fields & format::has_kind_and_origin) != 0) {
        std::uint8_t bits = 0;
        byte(bits);
        const unsigned origin = static_cast<unsigned>(bits) >> origin_shift;
        const unsigned kind = bits & ((1U << origin_shift) - 1);
        if (kind >= memory_kind_count || origin > static_cast<unsigned>(Origin::driver)) {
            fail(DecodeStatus::bad);
        } else {
            record.kind = static_cast<MemoryKind>(kind);
            record.origin = static_cast<Origin>(origin);
        }
    }
    if ((fields & format::has_device) != 0) {
        number(record.device);
    }
    if ((fields & format::has_context) != 0) {
        number(record.context);
    }
    if ((fields & format::has_name) != 0) {
        number(record.name);
    }
    if ((fields & format::has_correlation) != 0) {
        difference(record.correlation, record.correlation);
    }
}

DecodeStatus RecordDecoder::decode(EventType type, Event& record, CodecState& state) {
    record = state.last[static_cast<std::size_t>(type)];
    record.type = type;
    std::uint32_t fields = 0;
    number(fields);
    difference(record.time_ns, state.time_ns);
    record.address = 0;
    std::uint8_t place = 0;
    switch (fields & (format::at_latest_place | format::at_known_place | format::at_new_place)) {
        case 0:
            break;
        case format::at_latest_place:
            record.address = state.address;
            place = static_cast<std::uint8_t>(CodecState::place_of(record.address));
            break;
        case format::at_known_place:
            byte(place);
            if (place < state.places.size()) {
                record.address = state.places[place].address;
            }
            break;
        case format::at_new_place:
            difference(record.address, state.address);
            break;
        default:
            fail(DecodeStatus::bad);
    }
    const CodecPlace* known = nullptr;
    if ((fields & (format::at_latest_place | format::at_known_place)) != 0) {
        known = &state.places[place % state.places.size()];
        if (record.address == 0 || known->address != record.address) {
            fail(DecodeStatus::bad);  // no such place
        }
        record.requested = known->requested;
    }
    if ((fields & ~static_cast<std::uint32_t>(format::all_event_fields)) != 0) {
        fail(DecodeStatus::bad);
    }
    const bool has_requested = (fields & format::has_requested) != 0;
    if (has_requested) {
        number(record.requested);
    }
    record.size = size_unsaid(known, has_requested, record.requested);
    rest_of_event(fields, record);
    if (status_ == DecodeStatus::ok) {
        state.time_ns = record.time_ns;
        remember(state, record);
    }
    return status_;
}

DecodeStatus RecordDecoder::decode_plain(EventType type, Event& record, CodecState& state) {
    record = state.last[static_cast<std::size_t>(type)];
    record.type = type;
    std::uint32_t plain = 0;
    number(plain);
    if ((plain & ~format::all_plain_event_fields) != 0) {
        fail(DecodeStatus::bad);
    }
    const std::uint32_t fields = plain << format::plain_event_shift;
    difference(record.time_ns, state.time_ns);
    record.address = 0;
    if ((fields & format::at_new_place) != 0) {
        difference(record.address, state.address);
    }
    if ((fields & format::has_requested) != 0) {
        number(record.requested);
    }
    record.size = record.requested;
    rest_of_event(fields, record);
    if (status_ == DecodeStatus::ok) {
        state.time_ns = record.time_ns;
        if ((fields & format::at_new_place) != 0) {
            state.address = record.address;
        }
        state.last[static_cast<std::size_t>(type)] = record;
    }
    return status_;
}

DecodeStatus RecordDecoder::decode_plain(OomEvent& record, CodecState& state) {
    difference(record.time_ns, state.time_ns);
    number(record.device);
    number(record.context);
    number(record.thread);
    number(record.api);
    number(record.stack);
    kind(record.kind);
    number(record.requested);
    number(record.device_free);
    number(record.device_total);
    number(record.largest_free_block);
    number(record.error);
    return end_at(record.time_ns, state);
}

DecodeStatus RecordDecoder::decode(OomEvent& record, CodecState& state) {
    sized([&] {
        decode_plain(record, state);
        number(record.limit);
    });
    return status_;
}

DecodeStatus RecordDecoder::decode(DeviceSample& record, CodecState& state) {
    difference(record.time_ns, state.time_ns);
    number(record.device);
    number(record.used);
    number(record.total);
    return end_at(record.time_ns, state);
}

DecodeStatus RecordDecoder::decode(Missed& record, CodecState& state) {
    difference(record.time_ns, state.time_ns);
    number(record.reason);
    number(record.count);
    number(record.bytes);
    return end_at(record.time_ns, state);
}

DecodeStatus RecordDecoder::decode(Work& record, CodecState& state) {
    const Work& last = state.work;
    std::uint8_t kind = 0;
    if (byte(kind) && kind >= work_kind_count) {
        fail(DecodeStatus::bad);
    } else {
        record.kind = static_cast<WorkKind>(kind);
    }
    number(record.name);
    number(record.device);
    number(record.stream);
    difference(record.correlation, last.correlation);
    difference(record.start_ns, last.end_ns);
    number(record.end_ns);
    record.end_ns += record.start_ns;
    if (record.end_ns < record.start_ns) {
        fail(DecodeStatus::bad);
    }
    if (record.kind != WorkKind::kernel) {
        number(record.bytes);
    }
    if (status_ == DecodeStatus::ok) {
        state.work = record;
    }
    return status_;
}

DecodeStatus RecordDecoder::decode(Bypass& record, CodecState& state) {
    sized([&] {
        difference(record.time_ns, state.time_ns);
        kind(record.kind);
        number(record.device);
        number(record.api);
        number(record.stack);
        number(record.address);
        number(record.bytes);
    });
    return end_at(record.time_ns, state);
}

DecodeStatus RecordDecoder::decode(Coverage& record, CodecState& state) {
    sized([&] {
        difference(record.time_ns, state.time_ns);
        flag(record.audited);
        number(record.cupti);
        number(record.because);
        number(record.count);
        number(record.bytes);
        number(record.lost);
    });
    return end_at(record.time_ns, state);
}

DecodeStatus RecordDecoder::decode(LogStopped& record, CodecState& state) {
    sized([&] {
        difference(record.time_ns, state.time_ns);
        text(record.reason);
        for (unsigned shift = 0; shift < 64; shift += 8) {
            std::uint8_t part = 0;
            byte(part);
            record.events_dropped |= std::uint64_t{part} << shift;
        }
    });
    return end_at(record.time_ns, state);
}

DecodeStatus RecordDecoder::decode_plain(End& record, CodecState& state) {
    difference(record.time_ns, state.time_ns);
    std::uint8_t kind = 0;
    if (byte(kind) && kind > static_cast<std::uint8_t>(EndKind::quick_exit)) {
        fail(DecodeStatus::bad);
    } else {
        record.kind = static_cast<EndKind>(kind);
    }
    number(record.events_dropped);
    text(record.log_stopped_because);
    return end_at(record.time_ns, state);
}

DecodeStatus RecordDecoder::decode(End& record, CodecState& state) {
    sized([&] {
        decode_plain(record, state);
        std::uint8_t code = 0;
        byte(code);
        record.exit_code = code;
    });
    return status_;
}

}  // namespace memlab::trace
