// The event log's bytes: the numbers that its writer and its reader agree on. docs/event-log.md
// describes the format; this file, record.hpp and the two codecs are all that implements it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::trace::format {

inline constexpr unsigned char magic[8] = {'M', 'E', 'M', 'L', 'A', 'B', 'E', 'V'};
inline constexpr std::uint32_t version = 2;
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

/// A record's first byte. Never zero: zero is the end of the data. The other kinds' are in
/// MEMLAB_RECORD_KINDS.
inline constexpr std::uint8_t event_tag = 0x60;  ///< and the event's type
/// A free_requested that was complete at once, and its free_completed.
inline constexpr std::uint8_t freed_tag = 0x80;

/// Which fields of an event follow. What is absent is as docs/event-log.md says. The commonest come
/// first, so that a plain event needs one byte.
enum EventField : std::uint32_t {
    at_latest_address = 1U << 0,
    at_remembered_address = 1U << 1,
    at_new_address = 1U << 2,
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

/// How many addresses are remembered; an event names one in a byte.
constexpr std::size_t slot_count = 128;

}  // namespace memlab::trace::format
