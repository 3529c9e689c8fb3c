// Events to bytes and back, and what both codecs read and write numbers with.
//
// Events are by far the commonest records: each is written as differences from what came before it
// in the same block, half a dozen bytes instead of 72.
//
// Most events are about an address that an earlier one was about: memory is freed where it was
// allocated, and allocated where it was freed. So 128 addresses are remembered, each with what was
// last there, in the slot that the address itself chooses: nothing is searched for, in neither
// direction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

/// A varint to `to`, where there is room for max_number_size bytes; returns its end.
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
    Integer value = 0;
    for (std::size_t i = 0; i < sizeof(Integer); ++i) {
        value = static_cast<Integer>(value | static_cast<Integer>(from[i]) << (8 * i));
    }
    return value;
}

enum class DecodeStatus : std::uint8_t {
    ok,
    truncated,  ///< the bytes end inside the record
    bad,        ///< no writer writes this
};

/// Takes numbers and texts from bytes. Never reads past the end; the first failure stays.
class ByteReader {
  public:
    ByteReader(const std::uint8_t* begin, const std::uint8_t* end) : at_(begin), end_(end) {}

    /// The next byte; false at the end.
    bool byte(std::uint8_t& value);
    void number(std::uint64_t& value);
    void number(std::uint32_t& value);
    void number(std::int32_t& value);
    void difference(std::uint64_t& value, std::uint64_t base);
    void difference(std::uint32_t& value, std::uint32_t base);
    void text(std::string& value);
    /// A number of items, each of a byte at least: what cannot fit in the rest of the bytes is cut
    /// off, so that a wild count never allocates.
    std::size_t count();

    DecodeStatus status() const { return status_; }
    void fail(DecodeStatus status);
    /// What was truncated is bad.
    void now_bad() { status_ = DecodeStatus::bad; }

    const std::uint8_t* position() const { return at_; }
    bool at_end() const { return at_ == end_; }
    const std::uint8_t* end() const { return end_; }
    /// Not behind the end that was.
    void end_at(const std::uint8_t* end) { end_ = end; }
    void continue_at(const std::uint8_t* at, const std::uint8_t* end) {
        at_ = at;
        end_ = end;
    }

  private:
    const std::uint8_t* at_;
    const std::uint8_t* end_;
    DecodeStatus status_ = DecodeStatus::ok;
};

/// What the differences of records refer to.
struct DifferenceBases {
    std::uint64_t time_ns = 0;
    std::uint64_t work_end_ns = 0;
    std::uint32_t work_correlation = 0;
};

/// What an event said about an address.
struct RememberedAddress {
    std::uint64_t address = 0;  ///< 0: nothing yet
    std::uint64_t requested = 0;
    std::uint64_t size = 0;
};

/// What a block has said so far. Starts anew with every block.
struct CodecState {
    DifferenceBases bases;
    std::uint64_t address = 0;  ///< the latest that is not 0
    std::array<Event, event_type_count> last{};
    std::array<RememberedAddress, format::slot_count> remembered{};

    /// The slot for an address.
    static std::size_t slot_of(std::uint64_t address) {
        return static_cast<std::size_t>((address >> 9) * 0x9e3779b97f4a7c15 >> 57);
    }
};

/// The tag of a record that is one event.
constexpr std::uint8_t tag_of(EventType type) {
    return static_cast<std::uint8_t>(format::event_tag + static_cast<std::uint8_t>(type));
}

/// No event takes more bytes, its tag included.
inline constexpr std::size_t max_event_size = 112;

/// Writes the fields of an event to `to`, where there is room for max_event_size - 1 bytes; returns
/// the end. The tag stands before them: tag_of() its type, or freed_tag for a
/// free_requested and its completed_at_once() in one record.
std::uint8_t* encode_fields(const Event& event, CodecState& state, std::uint8_t* to);

/// The fields of an event, after its tag. `state` advances on ok only.
DecodeStatus decode_fields(ByteReader& from, EventType type, Event& event, CodecState& state);

}  // namespace memlab::trace
