// The codec of events, and the number encodings that both codecs use.
//
// Events are by far the most common records: each is encoded as differences from earlier ones in
// the same block, about six bytes instead of 72.
//
// Most events concern an address of an earlier one: memory is freed where it was allocated, and
// allocated where it was freed. So a direct-mapped cache remembers 128 addresses with their latest
// sizes; encoder and decoder compute the slot from the address, without a search.
//
// Where a recording has a thousand events a step, of a program whose every other instruction misses
// the caches, the code of that encoding costs more than its bytes save. So what such events share
// with the last one of their type is left out as a whole, and the rest takes three cache lines of
// code: the short form.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "trace/log_format.hpp"
#include "trace/record.hpp"

namespace memlab::trace {

inline constexpr std::size_t event_type_count = 16;

constexpr std::uint64_t zigzag(std::uint64_t difference) {
    return (difference << 1) ^ (0 - (difference >> 63));
}

constexpr std::uint64_t unzigzag(std::uint64_t value) {
    return (value >> 1) ^ (0 - (value & 1));
}

inline constexpr std::size_t max_number_size = 10;

/// Writes a LEB128 varint to `to`, which needs space for max_number_size bytes; returns its end.
inline std::uint8_t* put_number(std::uint8_t* to, std::uint64_t value) {
    while (value >= 0x80) {
        *to++ = static_cast<std::uint8_t>(value | 0x80);
        value >>= 7;
    }
    *to++ = static_cast<std::uint8_t>(value);
    return to;
}

/// Numbers of fixed width.
template <typename Integer>
void put_little_endian(std::uint8_t* to, Integer value) {
    for (std::size_t i = 0; i < sizeof(Integer); ++i) {
        to[i] = static_cast<std::uint8_t>(value >> (8 * i));
    }
}

template <typename Integer>
Integer little_endian(const std::uint8_t* from) {
    static_assert(std::endian::native == std::endian::little);
    Integer value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
}

enum class DecodeStatus : std::uint8_t {
    ok,
    truncated,  ///< the bytes end inside the record
    bad,        ///< not a valid encoding
};

/// Decodes numbers and strings from bytes. Never reads past the end; the first error is kept.
class ByteReader {
  public:
    ByteReader(const std::uint8_t* begin, const std::uint8_t* end) : at_(begin), end_(end) {}

    /// The next byte; false at the end.
    bool byte(std::uint8_t& value) {
        if (at_ == end_) {
            fail(DecodeStatus::truncated);
            return false;
        }
        value = *at_++;
        return true;
    }
    [[gnu::always_inline]] void number(std::uint64_t& value) {
        if (at_ != end_ && *at_ < 0x80) {
            value = *at_++;
            return;
        }
        if (static_cast<std::size_t>(end_ - at_) >= sizeof(std::uint64_t)) {
            const auto bytes = little_endian<std::uint64_t>(at_);
            constexpr std::uint64_t more = 0x8080'8080'8080'8080;
            if (const std::uint64_t last = ~bytes & more; last != 0) {
                at_ += (static_cast<std::size_t>(std::countr_zero(last)) + 1) / 8;
                value = join_groups(bytes & (last ^ (last - 1)));
                return;
            }
        }
        long_number(value);
    }
    [[gnu::always_inline]] void number(std::uint32_t& value) {
        std::uint64_t wide = 0;
        number(wide);
        if (wide > std::numeric_limits<std::uint32_t>::max()) {
            fail(DecodeStatus::bad);
            return;
        }
        value = static_cast<std::uint32_t>(wide);
    }
    void number(std::int32_t& value);
    /// A number of `size` bytes, eight at most.
    void fixed(std::uint64_t& value, std::size_t size) {
        if (static_cast<std::size_t>(end_ - at_) < size) {
            fail(DecodeStatus::truncated);
            return;
        }
        value = 0;
        std::memcpy(&value, at_, size);
        at_ += size;
    }
    [[gnu::always_inline]] void difference(std::uint64_t& value, std::uint64_t base) {
        std::uint64_t coded = 0;
        number(coded);
        value = base + unzigzag(coded);
    }
    void difference(std::uint32_t& value, std::uint32_t base);
    void text(std::string& value);
    /// An item count, each item of at least one byte: fails when they cannot fit in the remaining
    /// bytes, so that a corrupt count never causes a large allocation.
    std::size_t count();

    DecodeStatus status() const { return status_; }
    void fail(DecodeStatus status);
    /// Turns `truncated` into `bad`.
    void mark_bad() { status_ = DecodeStatus::bad; }

    const std::uint8_t* position() const { return at_; }
    bool at_end() const { return at_ == end_; }
    const std::uint8_t* end() const { return end_; }
    /// `end` must not be after the current end.
    void set_end(const std::uint8_t* end) { end_ = end; }
    void resume(const std::uint8_t* at, const std::uint8_t* end) {
        at_ = at;
        end_ = end;
    }

  private:
    /// The lower seven bits of each of the eight bytes, in one number: without a loop, whose end
    /// would be mispredicted.
    [[gnu::always_inline]] static constexpr std::uint64_t join_groups(std::uint64_t bytes) {
        bytes &= 0x7f7f'7f7f'7f7f'7f7f;
        bytes = (bytes & 0x007f'007f'007f'007f) | (bytes & 0x7f00'7f00'7f00'7f00) >> 1;
        bytes = (bytes & 0x0000'3fff'0000'3fff) | (bytes & 0x3fff'0000'3fff'0000) >> 2;
        return (bytes & 0x0000'0000'0fff'ffff) | (bytes & 0x0fff'ffff'0000'0000) >> 4;
    }
    /// A number that is longer than eight bytes, or near the end.
    void long_number(std::uint64_t& value);

    const std::uint8_t* at_;
    const std::uint8_t* end_;
    DecodeStatus status_ = DecodeStatus::ok;
};

/// The base values of difference-coded fields.
struct DifferenceBases {
    std::uint64_t time_ns = 0;
    std::uint64_t work_end_ns = 0;
    std::uint32_t work_correlation = 0;
};

/// The sizes that the latest event gave for an address.
struct RememberedAddress {
    std::uint64_t address = 0;  ///< 0: empty
    std::uint64_t requested = 0;
    std::uint64_t size = 0;
};

/// The codec's context. Reset with every block.
struct CodecState {
    std::uint64_t address = 0;  ///< the latest one that was not 0
    DifferenceBases bases;
    std::array<Event, event_type_count> last{};
    std::array<RememberedAddress, format::slot_count> remembered{};

    /// The slot of an address.
    static std::size_t slot(std::uint64_t address) {
        return static_cast<std::size_t>((address >> 9) * 0x9e3779b97f4a7c15 >> 57);
    }
};

/// The record tag of a single event.
constexpr std::uint8_t make_tag(EventType type) {
    return static_cast<std::uint8_t>(format::event_tag + static_cast<std::uint8_t>(type));
}

/// What the tag of an event's record says.
struct EventTag {
    EventType type;
    bool freed;                   ///< of a free_requested: its completed_at_once() follows
    bool is_short;                ///< by decode_short(), not by decode_fields()
    bool has_nn_modules = false;  ///< of a short alloc
};

/// None: no event has that tag.
constexpr std::optional<EventTag> parse_event_tag(std::uint8_t tag) {
    if (tag >= format::event_tag && tag < format::event_tag + event_type_count) {
        return EventTag{static_cast<EventType>(tag - format::event_tag), false, false};
    }
    switch (tag) {
        case format::freed_tag:
            return EventTag{EventType::free_requested, true, false};
        case format::short_alloc_tag:
            return EventTag{EventType::alloc, false, true};
        case format::short_nn_alloc_tag:
            return EventTag{EventType::alloc, false, true, true};
        case format::short_freed_tag:
            return EventTag{EventType::free_requested, true, true};
        default:
            return std::nullopt;
    }
}

/// Maximum encoded size of an event, including its tag.
inline constexpr std::size_t max_event_size = 112;

/// Writes the fields of an event to `to`, which needs space for max_event_size - 1 bytes; returns
/// the end. The caller writes the tag before them: make_tag(event.type), or freed_tag for a
/// free_requested and its completed_at_once() in one record.
std::uint8_t* encode_fields(const Event& event, CodecState& state, std::uint8_t* to);

/// Reads the fields of an event, after its tag: state.last of its type. After `truncated` the state
/// is as before, after `bad` of no use.
DecodeStatus decode_fields(ByteReader& from, EventType type, CodecState& state);

/// What a short event tells. The rest of it is as in the last event of its type in the block that
/// had not the short form.
struct ShortEvent {
    std::uint64_t time_ns = 0;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;       ///< both Event::requested and Event::size
    std::uint32_t stack = 0;       ///< of an alloc; a free has none
    std::uint32_t nn_modules = 0;  ///< the same
};

/// Space that encode_short() needs; it writes zeros behind what it encodes.
inline constexpr std::size_t max_short_size = 1 + 4 * sizeof(std::uint64_t);

/// How many bytes a number of a short event takes, by the two bits of its length.
constexpr unsigned short_number_bytes(unsigned length, unsigned most_bytes) {
    return length < 3 ? length + 1 : most_bytes;
}

/// Writes the fields of a short event behind its tag, as encode_fields() does. Null, without a
/// change of `state`, if they do not fit: then it is a common event. Branch-free otherwise.
template <bool has_stack>
[[gnu::always_inline]] inline std::uint8_t* encode_short(const ShortEvent& event, CodecState& state,
                                                         std::uint8_t* to) {
    const std::uint64_t time = event.time_ns - state.bases.time_ns;
    const std::uint64_t distance = event.address - state.address;
    constexpr std::uint64_t unit = std::uint64_t{1} << format::short_unit_bits;
    const std::uint64_t where = zigzag(
        static_cast<std::uint64_t>(static_cast<std::int64_t>(distance) >> format::short_unit_bits));
    if (((time | event.bytes) >> 32 | where >> 8 * format::short_address_bytes |
         event.nn_modules >> 8 * format::short_nn_modules_bytes | (distance & (unit - 1))) != 0 ||
        event.address == 0) [[unlikely]] {
        return nullptr;
    }
    state.bases.time_ns = event.time_ns;
    state.address = event.address;
    std::uint8_t* const lengths = to++;
    unsigned all_lengths = 0;
    unsigned shift = 0;
    // Each store is of eight bytes, of which the next one overwrites the zeros.
    const auto put = [&](std::uint64_t value, unsigned most_bytes = 4) {
        std::memcpy(to, &value, sizeof value);
        const unsigned bytes = (static_cast<unsigned>(std::bit_width(value | 1)) + 7) / 8;
        const unsigned length = std::min(bytes - 1, 3U);
        all_lengths |= length << shift;
        shift += 2;
        to += short_number_bytes(length, most_bytes);
    };
    put(time);
    put(where, format::short_address_bytes);
    put(std::rotr(static_cast<std::uint32_t>(event.bytes), format::short_unit_bits));
    if constexpr (has_stack) {
        put(event.stack);
        std::memcpy(to, &event.nn_modules, format::short_nn_modules_bytes);
        to += event.nn_modules != 0 ? format::short_nn_modules_bytes : 0;
    }
    *lengths = static_cast<std::uint8_t>(all_lengths);
    return to;
}

/// Reads the fields of a short event, after its tag, into `event`. After `truncated` the state is
/// as before, after `bad` of no use.
DecodeStatus decode_short(ByteReader& from, const EventTag& tag, CodecState& state, Event& event);

}  // namespace memlab::trace
