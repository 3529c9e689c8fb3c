// Records to bytes and back. One place for both directions, so that they cannot drift apart.
//
// A record is its tag and its fields: varints (LEB128), zigzag where a value may fall, strings as
// length and bytes. A sized record has the length of its fields before them, so that a reader may
// meet one that has more fields than it knows. Events are written as differences from what came
// before them in the same block: half a dozen bytes instead of 72.
//
// Most events are about a place that an earlier one was about: memory is freed where it was
// allocated, and allocated where it was freed. So 128 places are remembered, each with what was
// last there, in the entry that the address itself chooses: nothing is searched for, in neither
// direction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/log_format.hpp"
#include "trace/record.hpp"

namespace memlab::trace {

inline constexpr std::size_t event_type_count = 16;

/// What an event said about an address.
struct CodecPlace {
    std::uint64_t address = 0;  ///< 0: nothing yet
    std::uint64_t requested = 0;
    std::uint64_t size = 0;
};

/// What differences refer to. Starts anew with every block.
struct CodecState {
    std::uint64_t time_ns = 0;
    std::uint64_t address = 0;  ///< the latest that is not 0
    std::array<Event, event_type_count> last{};
    Work work;
    std::array<CodecPlace, format::place_count> places{};

    /// The entry for an address.
    static std::size_t place_of(std::uint64_t address) {
        return static_cast<std::size_t>((address >> 9) * 0x9e3779b97f4a7c15 >> 57);
    }
};

/// The tag of a record that is one event.
constexpr format::Tag tag_of(EventType type) {
    return static_cast<format::Tag>(static_cast<std::uint8_t>(format::Tag::event) +
                                    static_cast<std::uint8_t>(type));
}

/// No event takes more bytes, its tag included.
inline constexpr std::size_t max_event_size = 112;

/// Writes the fields of an event to `to`, where there is room for max_event_size - 1 bytes; returns
/// the end. The tag stands before them: tag_of() its type, or Tag::freed for a
/// free_requested and its completed_at_once() in one record.
std::uint8_t* encode_fields(const Event& event, CodecState& state, std::uint8_t* to);

/// Appends records to a byte vector. May throw std::bad_alloc.
class RecordEncoder {
  public:
    /// `bytes` is appended to; `state` advances with every event and time.
    RecordEncoder(std::vector<std::uint8_t>& bytes, CodecState& state)
        : bytes_(bytes), state_(state) {}

    void encode(const ProcessInfo& record);
    void encode(const OptionValue& record);
    void encode(const DeviceInfo& record);
    void encode(const ContextInfo& record);
    void encode(const ContextLost& record);
    void encode(const ThreadInfo& record);
    void encode(const StringDef& record);
    void encode(const ModuleDef& record);
    void encode(const PythonFrameDef& record);
    void encode(const StackDef& record);
    void encode(const Event& record) {
        byte(static_cast<std::uint8_t>(tag_of(record.type)));
        std::array<std::uint8_t, max_event_size> fields;
        bytes_.insert(bytes_.end(), fields.data(), encode_fields(record, state_, fields.data()));
    }
    void encode(const OomEvent& record);
    void encode(const DeviceSample& record);
    void encode(const Missed& record);
    void encode(const Work& record);
    void encode(const Bypass& record);
    void encode(const Coverage& record);
    /// Its last eight bytes are the number of events dropped, little-endian.
    void encode(const LogStopped& record);
    void encode(const End& record);

  private:
    void byte(std::uint8_t value) { bytes_.push_back(value); }
    void number(std::uint64_t value);
    void difference(std::uint64_t value, std::uint64_t base);
    void text(const std::string& value);
    void time(std::uint64_t value);
    template <typename Fields>
    void sized(Fields fields);

    std::vector<std::uint8_t>& bytes_;
    CodecState& state_;
};

enum class DecodeStatus : std::uint8_t {
    ok,
    truncated,  ///< the bytes end inside the record
    bad,        ///< no writer writes this
};

/// Reads one record. Never reads past the end, never allocates more than a small multiple of the
/// bytes given. May throw std::bad_alloc.
class RecordDecoder {
  public:
    RecordDecoder(const std::uint8_t* begin, const std::uint8_t* end) : at_(begin), end_(end) {}

    /// After the tag byte was taken: the fields of that record. `state` advances on ok only.
    DecodeStatus decode(ProcessInfo& record);
    DecodeStatus decode(OptionValue& record);
    DecodeStatus decode(DeviceInfo& record);
    /// As earlier versions wrote it, without length and limit.
    DecodeStatus decode_plain(DeviceInfo& record);
    DecodeStatus decode(ContextInfo& record);
    DecodeStatus decode(ContextLost& record, CodecState& state);
    DecodeStatus decode(ThreadInfo& record);
    DecodeStatus decode(StringDef& record);
    DecodeStatus decode(ModuleDef& record);
    DecodeStatus decode(PythonFrameDef& record);
    /// Without Python frames.
    DecodeStatus decode_native(StackDef& record);
    DecodeStatus decode_mixed(StackDef& record);
    DecodeStatus decode(EventType type, Event& record, CodecState& state);
    /// As earlier versions wrote it, without places.
    DecodeStatus decode_plain(EventType type, Event& record, CodecState& state);
    DecodeStatus decode(OomEvent& record, CodecState& state);
    /// As earlier versions wrote it, without length and limit.
    DecodeStatus decode_plain(OomEvent& record, CodecState& state);
    DecodeStatus decode(DeviceSample& record, CodecState& state);
    DecodeStatus decode(Missed& record, CodecState& state);
    DecodeStatus decode(Work& record, CodecState& state);
    DecodeStatus decode(Bypass& record, CodecState& state);
    DecodeStatus decode(Coverage& record, CodecState& state);
    DecodeStatus decode(LogStopped& record, CodecState& state);
    DecodeStatus decode(End& record, CodecState& state);
    /// Of a process whose exit code is not known.
    DecodeStatus decode_plain(End& record, CodecState& state);

    /// The next byte; false at the end.
    bool byte(std::uint8_t& value);
    const std::uint8_t* position() const { return at_; }

  private:
    void number(std::uint64_t& value);
    void number(std::uint32_t& value);
    void number(std::int32_t& value);
    void difference(std::uint64_t& value, std::uint64_t base);
    void difference(std::uint32_t& value, std::uint32_t base);
    void text(std::string& value);
    void flag(bool& value);
    void kind(MemoryKind& value);
    void rest_of_event(std::uint32_t fields, Event& record);
    DecodeStatus end_at(std::uint64_t time_ns, CodecState& state);
    std::size_t count(std::size_t smallest_item);
    template <typename Fields>
    void sized(Fields fields);
    std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
    void fail(DecodeStatus status);

    const std::uint8_t* at_;
    const std::uint8_t* end_;
    DecodeStatus status_ = DecodeStatus::ok;
};

}  // namespace memlab::trace
