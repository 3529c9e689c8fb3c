#include "trace/log_ring.hpp"

#include <cstring>

#include "trace/crc32c.hpp"
#include "trace/event_codec.hpp"

namespace memlab::trace {

std::size_t LogRing::put_file_header(std::uint8_t* header) const {
    std::memset(header, 0, format::file_header_size);
    std::memcpy(header, format::magic, sizeof format::magic);
    put_little_endian(header + 8, regions == 0 ? format::version : format::ring_version);
    if (regions == 0) {
        return format::file_header_size;
    }
    put_little_endian(header + 12, regions);
    put_little_endian(header + 16, beginning);
    put_little_endian(header + 24, region_size);
    return format::ring_file_header_size;
}

void put_region_header(std::uint8_t* header, std::uint64_t region) {
    std::memset(header, 0, format::region_header_size);
    header[0] = format::region_tag;
    put_little_endian(header + 8, region);
    put_little_endian(header + 4, crc32c(0, header + 8, 8));
}

}  // namespace memlab::trace
