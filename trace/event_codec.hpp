// The codec of events, and the number encodings that both codecs use.
//
// Events are by far the most common records: each is encoded as differences from earlier ones in
// the same block, about six bytes instead of 72.
//
// Most events concern an address of an earlier one: memory is freed where it was allocated, and
// allocated where it was freed. So a direct-mapped cache remembers 128 addresses with their latest
// sizes; encoder and decoder compute the slot from the address, without a search.
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
    Integer value = 0;
    for (std::size_t i = 0; i < sizeof(Integer); ++i) {
        value = static_cast<Integer>(value | static_cast<Integer>(from[i]) << (8 * i));
    }
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
    bool byte(std::uint8_t& value);
    void number(std::uint64_t& value);
    void number(std::uint32_t& value);
    void number(std::int32_t& value);
    void difference(std::uint64_t& value, std::uint64_t base);
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
    DifferenceBases bases;
    std::uint64_t address = 0;  ///< the latest one that was not 0
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

/// Maximum encoded size of an event, including its tag.
inline constexpr std::size_t max_event_size = 112;

/// Writes the fields of an event to `to`, which needs space for max_event_size - 1 bytes; returns
/// the end. The caller writes the tag before them: make_tag(event.type), or freed_tag for a
/// free_requested and its completed_at_once() in one record.
std::uint8_t* encode_fields(const Event& event, CodecState& state, std::uint8_t* to);

/// Reads the fields of an event, after its tag. `state` is updated on ok only.
DecodeStatus decode_fields(ByteReader& from, EventType type, Event& event, CodecState& state);

}  // namespace memlab::trace
