// CRC-32C (Castagnoli), the checksum of the event log's sealed blocks. Uses the SSE4.2 instruction,
// else tables (slicing by eight).
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::trace {

/// The checksum of `size` bytes that follow data whose checksum is `previous` (0 for none).
/// Known answer: crc32c(0, "123456789", 9) == 0xe3069283.
std::uint32_t crc32c(std::uint32_t previous, const void* data, std::size_t size);

/// The same, by tables.
std::uint32_t crc32c_by_table(std::uint32_t previous, const void* data, std::size_t size);

}  // namespace memlab::trace
