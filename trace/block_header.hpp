// Reads, checks and writes the header of a block of the log.
#pragma once

#include <cstdint>

namespace memlab::trace {

/// The checked header of a block, of records or of a checkpoint.
struct BlockHeader {
    enum class Kind : std::uint8_t { none, open, sealed, bad };
    Kind kind = Kind::none;
    std::uint32_t length = 0;  ///< of the payload, of a sealed block
    std::uint32_t crc = 0;     ///< of the payload, of a sealed block

    /// From the first format::block_header_size bytes, whose tag is that of a block.
    static BlockHeader parse(const std::uint8_t* bytes);
};

/// Fills in the header of a block that is complete, tag included.
void put_block_header(std::uint8_t* header, std::uint8_t tag, std::uint32_t length,
                      std::uint32_t crc);

}  // namespace memlab::trace
