// CRC-32C (Castagnoli), the checksum of the event log's sealed blocks. By the processor's own
// instruction, which every x86-64 of the last fifteen years has; else by tables, eight bytes a
// step.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::trace {

/// The checksum of `size` bytes that follow data whose checksum is `previous` (0 for none).
/// Known answer: crc32c(0, "123456789", 9) == 0xe3069283.
std::uint32_t crc32c(std::uint32_t previous, const void* data, std::size_t size);

/// The same, on any processor.
std::uint32_t crc32c_by_table(std::uint32_t previous, const void* data, std::size_t size);

}  // namespace memlab::trace
