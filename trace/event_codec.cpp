#include "trace/event_codec.hpp"

#include <bit>

namespace memlab::trace {
namespace {

constexpr int origin_shift = 4;

std::uint8_t* put_difference(std::uint8_t* to, std::uint64_t value, std::uint64_t base) {
    return put_number(to, zigzag(value - base));
}

/// The size of an event without has_size: the remembered one of its address if `requested` is
/// implied too, else `requested`.
std::uint64_t default_size(const RememberedAddress* known, bool has_requested,
                           std::uint64_t requested) {
    return known != nullptr && !has_requested ? known->size : requested;
}

/// More than any event takes, also one whose numbers are all of the greatest length.
constexpr std::ptrdiff_t max_decoded_size = 160;

void remember_address(CodecState& state, const Event& event) {
    if (event.address != 0) {
        state.address = event.address;
        state.remembered[CodecState::slot(event.address)] = {event.address, event.requested,
                                                             event.size};
    }
}

/// Decodes the fields from size on, which do not depend on a remembered address.
[[gnu::always_inline]] inline void decode_other_fields(ByteReader& from, std::uint32_t fields,
                                                       Event& record) {
    if ((fields & format::has_size) != 0) {
        from.difference(record.size, record.requested);
    }
    if ((fields & format::has_stack) != 0) {
        from.number(record.stack);
    }
    if (fields < format::has_thread) [[likely]] {
        return;
    }
    if ((fields & format::has_thread) != 0) {
        from.number(record.thread);
    }
    if ((fields & format::has_stream) != 0) {
        from.number(record.stream);
    }
    if ((fields & format::has_api) != 0) {
        from.number(record.api);
    }
    if ((fields & format::has_kind_and_origin) != 0) {
        std::uint8_t bits = 0;
        from.byte(bits);
        const unsigned origin = static_cast<unsigned>(bits) >> origin_shift;
        const unsigned kind = bits & ((1U << origin_shift) - 1);
        if (kind >= memory_kind_count || origin > static_cast<unsigned>(Origin::driver)) {
            from.fail(DecodeStatus::bad);
        } else {
            record.kind = static_cast<MemoryKind>(kind);
            record.origin = static_cast<Origin>(origin);
        }
    }
    if ((fields & format::has_device) != 0) {
        from.number(record.device);
    }
    if ((fields & format::has_context) != 0) {
        from.number(record.context);
    }
    if ((fields & format::has_name) != 0) {
        from.number(record.name);
    }
    if ((fields & format::has_correlation) != 0) {
        from.difference(record.correlation, record.correlation);
    }
    if ((fields & format::has_nn_modules) != 0) {
        from.number(record.nn_modules);
    }
}

/// Decodes into `record`, which begins as the last event of its type. `state` is updated on ok.
void decode(ByteReader& source, Event& record, CodecState& state) {
    ByteReader from(source.position(), source.end());  // stays in registers
    std::uint32_t fields = 0;
    from.number(fields);
    from.difference(record.time_ns, state.bases.time_ns);
    record.address = 0;
    std::uint8_t slot = 0;
    switch (fields &
            (format::at_latest_address | format::at_remembered_address | format::at_new_address)) {
        case 0:
            break;
        case format::at_latest_address:
            record.address = state.address;
            slot = static_cast<std::uint8_t>(CodecState::slot(record.address));
            break;
        case format::at_remembered_address:
            from.byte(slot);
            if (slot < state.remembered.size()) {
                record.address = state.remembered[slot].address;
            }
            break;
        case format::at_new_address:
            from.difference(record.address, state.address);
            break;
        default:
            from.fail(DecodeStatus::bad);
    }
    const RememberedAddress* known = nullptr;
    if ((fields & (format::at_latest_address | format::at_remembered_address)) != 0) {
        known = &state.remembered[slot % state.remembered.size()];
        if (record.address == 0 || known->address != record.address) {
            from.fail(DecodeStatus::bad);  // an empty slot
        }
        record.requested = known->requested;
    }
    if ((fields & ~static_cast<std::uint32_t>(format::all_event_fields)) != 0) {
        from.fail(DecodeStatus::bad);
    }
    const bool has_requested = (fields & format::has_requested) != 0;
    if (has_requested) {
        from.number(record.requested);
    }
    record.size = default_size(known, has_requested, record.requested);
    decode_other_fields(from, fields, record);
    if (from.status() == DecodeStatus::ok) {
        state.bases.time_ns = record.time_ns;
        remember_address(state, record);
    } else {
        source.fail(from.status());
    }
    source.resume(from.position(), from.end());
}

}  // namespace

[[gnu::hot]] std::uint8_t* encode_fields(const Event& event, CodecState& state, std::uint8_t* to) {
    const auto type = static_cast<std::size_t>(event.type);
    const Event& last = state.last[type];
    const std::size_t slot = CodecState::slot(event.address);
    const RememberedAddress* known = nullptr;
    std::uint32_t fields = 0;
    if (event.address != 0) {
        if (state.remembered[slot].address == event.address) {
            known = &state.remembered[slot];
            fields = event.address == state.address ? format::at_latest_address
                                                    : format::at_remembered_address;
        } else {
            fields = format::at_new_address;
        }
    }
    const auto set_if = [&fields](bool differs, std::uint32_t field) {
        fields |= differs ? field : 0;
    };
    const bool has_requested =
        event.requested != (known != nullptr ? known->requested : last.requested);
    const std::uint64_t implied_size = default_size(known, has_requested, event.requested);
    set_if(has_requested, format::has_requested);
    set_if(event.size != implied_size, format::has_size);
    set_if(event.stack != last.stack, format::has_stack);
    set_if(event.thread != last.thread, format::has_thread);
    set_if(event.stream != last.stream, format::has_stream);
    set_if(event.api != last.api, format::has_api);
    set_if(event.kind != last.kind || event.origin != last.origin, format::has_kind_and_origin);
    set_if(event.device != last.device, format::has_device);
    set_if(event.context != last.context, format::has_context);
    set_if(event.name != last.name, format::has_name);
    set_if(event.correlation != last.correlation, format::has_correlation);
    set_if(event.nn_modules != last.nn_modules, format::has_nn_modules);

    to = put_number(to, fields);
    to = put_difference(to, event.time_ns, state.bases.time_ns);
    state.bases.time_ns = event.time_ns;
    if ((fields & format::at_remembered_address) != 0) {
        *to++ = static_cast<std::uint8_t>(slot);
    }
    if ((fields & format::at_new_address) != 0) {
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
        if ((fields & format::has_nn_modules) != 0) {
            to = put_number(to, event.nn_modules);
        }
    }
    remember_address(state, event);
    state.last[type] = event;
    return to;
}

void ByteReader::fail(DecodeStatus status) {
    if (status_ == DecodeStatus::ok) {
        status_ = status;
    }
    at_ = end_;
}

void ByteReader::long_number(std::uint64_t& value) {
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

void ByteReader::number(std::int32_t& value) {
    std::uint32_t bits = 0;
    number(bits);
    value = static_cast<std::int32_t>(bits);
}

void ByteReader::difference(std::uint32_t& value, std::uint32_t base) {
    std::uint64_t wide = 0;
    difference(wide, base);
    value = static_cast<std::uint32_t>(wide);
}

void ByteReader::text(std::string& value) {
    const std::size_t size = count();
    value.assign(reinterpret_cast<const char*>(at_), size);
    at_ += size;
}

std::size_t ByteReader::count() {
    std::uint64_t value = 0;
    number(value);
    if (value > format::max_record) {
        fail(DecodeStatus::bad);
        return 0;
    }
    if (value > static_cast<std::size_t>(end_ - at_)) {
        fail(DecodeStatus::truncated);
        return 0;
    }
    return status_ == DecodeStatus::ok ? static_cast<std::size_t>(value) : 0;
}

DecodeStatus decode_fields(ByteReader& from, EventType type, CodecState& state) {
    Event& last = state.last[static_cast<std::size_t>(type)];
    last.type = type;
    if (from.end() - from.position() >= max_decoded_size) {
        decode(from, last, state);
        return from.status();
    }
    // It may be truncated, and then is read again with what follows.
    Event event = last;
    decode(from, event, state);
    if (from.status() == DecodeStatus::ok) {
        last = event;
    }
    return from.status();
}

DecodeStatus decode_short(ByteReader& from, const EventTag& tag, CodecState& state, Event& event) {
    const EventType type = tag.type;
    std::uint8_t lengths = 0;
    from.byte(lengths);
    const auto take = [&](unsigned most_bytes = 4) {
        std::uint64_t value = 0;
        from.fixed(value, short_number_bytes(lengths & 3U, most_bytes));
        lengths = static_cast<std::uint8_t>(lengths >> 2U);
        return value;
    };
    event = state.last[static_cast<std::size_t>(type)];
    event.type = type;
    event.time_ns = state.bases.time_ns + take();
    event.address =
        state.address + (unzigzag(take(format::short_address_bytes)) << format::short_unit_bits);
    event.requested = std::rotl(static_cast<std::uint32_t>(take()), format::short_unit_bits);
    event.size = event.requested;
    event.stack = type == EventType::alloc ? static_cast<std::uint32_t>(take()) : 0;
    std::uint64_t nn_modules = 0;
    if (tag.has_nn_modules) {
        from.fixed(nn_modules, format::short_nn_modules_bytes);
    }
    event.nn_modules = static_cast<std::uint32_t>(nn_modules);
    if (lengths != 0 || event.address == 0 || (tag.has_nn_modules && nn_modules == 0)) {
        from.fail(DecodeStatus::bad);
    }
    if (from.status() == DecodeStatus::ok) {
        state.bases.time_ns = event.time_ns;
        state.address = event.address;
    }
    return from.status();
}

}  // namespace memlab::trace
