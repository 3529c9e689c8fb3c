#include "trace/crc32c.hpp"

#include <array>
#include <cstring>

namespace memlab::trace {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // Castagnoli, bits reversed

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
    Tables tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
        }
        tables[0][byte] = crc;
    }
    for (std::size_t slice = 1; slice < tables.size(); ++slice) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = tables[slice - 1][byte];
            tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xff];
        }
    }
    return tables;
}

constexpr Tables tables = make_tables();

/// `crc` and the result are the inverted checksum.
[[gnu::hot]] __attribute__((target("sse4.2"))) std::uint32_t by_instruction(
    std::uint32_t crc, const unsigned char* bytes, std::size_t size) {
    while (size >= 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes, sizeof word);
        crc = static_cast<std::uint32_t>(__builtin_ia32_crc32di(crc, word));
        bytes += 8;
        size -= 8;
    }
    if (size >= 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, bytes, sizeof word);
        crc = __builtin_ia32_crc32si(crc, word);
        bytes += 4;
        size -= 4;
    }
    while (size-- > 0) {
        crc = __builtin_ia32_crc32qi(crc, *bytes++);
    }
    return crc;
}

std::uint32_t by_table(std::uint32_t crc, const unsigned char* bytes, std::size_t size) {
    while (size >= 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes, sizeof word);
        word ^= crc;
        crc = tables[7][word & 0xff] ^ tables[6][(word >> 8) & 0xff] ^
              tables[5][(word >> 16) & 0xff] ^ tables[4][(word >> 24) & 0xff] ^
              tables[3][(word >> 32) & 0xff] ^ tables[2][(word >> 40) & 0xff] ^
              tables[1][(word >> 48) & 0xff] ^ tables[0][(word >> 56) & 0xff];
        bytes += 8;
        size -= 8;
    }
    while (size-- > 0) {
        crc = (crc >> 8) ^ tables[0][(crc ^ *bytes++) & 0xff];
    }
    return crc;
}

}  // namespace

[[gnu::hot]] std::uint32_t crc32c(std::uint32_t previous, const void* data, std::size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    return __builtin_cpu_supports("sse4.2") ? ~by_instruction(~previous, bytes, size)
                                            : ~by_table(~previous, bytes, size);
}

std::uint32_t crc32c_by_table(std::uint32_t previous, const void* data, std::size_t size) {
    return ~by_table(~previous, static_cast<const unsigned char*>(data), size);
}

}  // namespace memlab::trace
