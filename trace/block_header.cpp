#include "trace/block_header.hpp"

#include "trace/crc32c.hpp"
#include "trace/event_codec.hpp"
#include "trace/log_format.hpp"

namespace memlab::trace {

BlockHeader BlockHeader::parse(const std::uint8_t* bytes) {
    BlockHeader header;
    const std::uint8_t sealed = bytes[format::block_sealed_offset];
    if (sealed == 0) {
        // Length and checksum may be present already: the seal is written last.
        header.kind = Kind::open;
        return header;
    }
    const std::uint8_t* const length_at = bytes + format::block_length_offset;
    header.length = little_endian<std::uint32_t>(length_at);
    header.crc = little_endian<std::uint32_t>(length_at + 4);
    const auto check = little_endian<std::uint16_t>(length_at + 8);
    const bool good = sealed == format::block_sealed &&
                      check == static_cast<std::uint16_t>(crc32c(0, length_at, 8)) &&
                      header.length <= format::max_block;
    header.kind = good ? Kind::sealed : Kind::bad;
    return header;
}

void put_block_header(std::uint8_t* header, std::uint8_t tag, std::uint32_t length,
                      std::uint32_t crc) {
    header[0] = tag;
    header[format::block_sealed_offset] = format::block_sealed;
    std::uint8_t* const length_at = header + format::block_length_offset;
    put_little_endian(length_at, length);
    put_little_endian(length_at + 4, crc);
    put_little_endian(length_at + 8, static_cast<std::uint16_t>(crc32c(0, length_at, 8)));
}

}  // namespace memlab::trace
