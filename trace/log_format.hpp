// Constants of the event log's binary format, shared by its writer and reader. docs/event-log.md
// specifies the format; this file, record.hpp and the two codecs implement it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::trace::format {

inline constexpr unsigned char magic[8] = {'M', 'E', 'M', 'L', 'A', 'B', 'E', 'V'};
/// Of a log that is written from its beginning to its end.
inline constexpr std::uint32_t version = 2;
/// Magic, version (u32), reserved (u32, zero). All fixed-width numbers are little-endian.
inline constexpr std::size_t file_header_size = 16;

/// Of a log whose newest part is written to a ring of regions behind its beginning: instead of
/// `reserved` the number of regions (u32), then the offset of the first (u64), the size of each
/// (u64).
inline constexpr std::uint32_t ring_version = 3;
inline constexpr std::size_t ring_file_header_size = 32;
inline constexpr std::uint32_t ring_regions = 8;
inline constexpr std::uint32_t max_ring_regions = 1024;
/// So that a region has space for the largest blocks of usual records.
inline constexpr std::uint64_t min_region_size = std::uint64_t{192} << 10;
inline constexpr std::uint64_t max_region_size = std::uint64_t{1} << 48;

/// A region's header: tag, three zero bytes, CRC-32C (u32) of its number, its number (u64): how
/// many regions were begun before it. Blocks follow.
inline constexpr std::uint8_t region_tag = 0xb7;
inline constexpr std::size_t region_header_size = 16;

/// A block of a checkpoint. Its header is as of a sealed block; its payload begins with the number
/// of the checkpoint (u32), of the block in it (u32), how many blocks it has (u32), and the
/// position of the first record behind the checkpoint: number of the region (u64), offset in it
/// (u64). Records follow, to be read after those of the blocks before.
inline constexpr std::uint8_t checkpoint_tag = 0xb6;
inline constexpr std::size_t checkpoint_prefix_size = 28;

/// A block's header: tag, sealed, payload length (u32), CRC-32C of the payload (u32), check (u16:
/// the low half of the CRC-32C of the two fields before). All but the tag is zero until sealed.
inline constexpr std::uint8_t block_tag = 0xb5;
inline constexpr std::uint8_t block_sealed = 0x5a;
inline constexpr std::size_t block_header_size = 12;
inline constexpr std::size_t block_sealed_offset = 1;
inline constexpr std::size_t block_length_offset = 2;

/// A block is sealed once its payload reaches this size; it exceeds it by less than one record.
inline constexpr std::size_t block_target = std::size_t{64} << 10;
/// Bounds the reader's memory. The kernel limits arguments to 6 MiB, so ProcessInfo fits.
inline constexpr std::size_t max_record = std::size_t{8} << 20;
inline constexpr std::size_t max_block = block_target + max_record;
/// Devices are defined by index, in any order; more than any host has.
inline constexpr std::uint32_t max_devices = 1024;

/// A record's first byte. Never zero, which marks the end of the data. MEMLAB_RECORD_KINDS has the
/// tags of the other kinds.
inline constexpr std::uint8_t event_tag = 0x60;  ///< plus the event's type
/// A free_requested that completed immediately, and its free_completed.
inline constexpr std::uint8_t freed_tag = 0x80;
/// The short forms of an alloc and of a freed_tag's events.
inline constexpr std::uint8_t short_alloc_tag = 0x90;
inline constexpr std::uint8_t short_freed_tag = 0x91;
/// Of an alloc with Event::nn_modules.
inline constexpr std::uint8_t short_nn_alloc_tag = 0x92;
/// Addresses of short events are multiples of 2^9, as PyTorch's are, and most sizes.
inline constexpr int short_unit_bits = 9;
/// What the greatest length of an address means: differences of less than 2^48 bytes.
inline constexpr unsigned short_address_bytes = 5;
inline constexpr unsigned short_nn_modules_bytes = 2;

/// The fields of an event that are present; docs/event-log.md has the defaults of absent ones. The
/// most common come first, so that the mask of a plain event is one byte.
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
    has_nn_modules = 1U << 14,
    all_event_fields = (1U << 15) - 1,
};

/// Size of the address cache of a block; an event refers to a slot by one byte.
constexpr std::size_t slot_count = 128;

}  // namespace memlab::trace::format
