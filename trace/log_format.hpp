// The event log's bytes: the numbers that its writer and its reader agree on. docs/event-log.md
// describes the format; this file and record_codec.* are all that implements it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::trace::format {

inline constexpr unsigned char magic[8] = {'M', 'E', 'M', 'L', 'A', 'B', 'E', 'V'};
inline constexpr std::uint32_t version = 1;
/// Magic, version (u32), reserved (u32, zero). All fixed-width numbers are little-endian.
inline constexpr std::size_t file_header_size = 16;

/// A block: tag, sealed, payload length (u32), CRC-32C of length and payload (u32), check (u16).
/// Everything but the tag is zero until the block is sealed.
inline constexpr std::uint8_t block_tag = 0xb5;
inline constexpr std::uint8_t block_sealed = 0x5a;
inline constexpr std::size_t block_header_size = 12;
inline constexpr std::size_t block_sealed_offset = 1;
inline constexpr std::size_t block_length_offset = 2;

/// A block is sealed once its payload has this size; it exceeds it by less than one record.
inline constexpr std::size_t block_target = std::size_t{64} << 10;
/// Bounds the reader's memory. The kernel passes 6 MiB of arguments at most: ProcessInfo fits.
inline constexpr std::size_t max_record = std::size_t{8} << 20;
inline constexpr std::size_t max_block = block_target + max_record;
/// Devices are defined by index, not in order; more than any host has.
inline constexpr std::uint32_t max_devices = 1024;

/// A record's first byte. Never zero: zero is the end of the data. Events are event + type.
enum class Tag : std::uint8_t {
    process_info = 1,
    option_value,
    device_info_plain,  ///< read, no longer written: device_info without a limit
    context_info,
    context_lost,
    string_def,
    module_def,
    stack_def,
    oom_event_plain,  ///< read, no longer written: oom_event without a limit
    device_sample,
    missed,
    end,  ///< of a process whose exit code is not known
    device_info,
    oom_event,
    python_frame_def,
    mixed_stack_def,  ///< a stack_def with Python frames
    coverage = 20,
    bypass,
    work,
    end_with_code = 25,
    thread_info,
    log_stopped,
    event_plain = 0x40,  ///< read, no longer written: events that remember no places
    event = 0x60,
    freed = 0x80,  ///< a free_requested that was complete at once, and its free_completed
};

/// Which fields of an event follow. What is absent is as docs/event-log.md says. The commonest come
/// first, so that a plain event needs one byte.
enum EventField : std::uint32_t {
    at_latest_place = 1U << 0,
    at_known_place = 1U << 1,
    at_new_place = 1U << 2,
    has_requested = 1U << 3,
    has_size = 1U << 4,
    has_stack = 1U << 5,
    has_thread = 1U << 6,
    has_stream = 1U << 7,
    has_api = 1U << 8,
    has_kind_and_origin = 1U << 9,
    has_device = 1U << 10,
    has_context = 1U << 11,
    has_name = 1U << 12,
    has_correlation = 1U << 13,
    all_event_fields = (1U << 14) - 1,
};

/// The same of an event_plain: address, requested and size, then as above.
constexpr int plain_event_shift = 2;
constexpr std::uint32_t all_plain_event_fields = all_event_fields >> plain_event_shift;

/// How many places events remember; an event names one in a byte.
constexpr std::size_t place_count = 128;

}  // namespace memlab::trace::format
