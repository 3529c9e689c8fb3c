// Takes a message of protocol buffers apart, by the rules of its encoding.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.hpp"

namespace memlab::test {

struct Field {
    std::uint64_t number = 0;
    std::uint64_t value = 0;  ///< of a varint
    double real = 0;
    std::string text;
};

inline std::uint64_t take_varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        REQUIRE(!bytes.empty());
        REQUIRE(shift < 70);
        const auto byte = static_cast<unsigned char>(bytes.front());
        bytes.remove_prefix(1);
        value |= std::uint64_t{byte & 0x7fU} << shift;
        if (byte < 0x80) {
            return value;
        }
    }
}

inline std::vector<Field> fields_of(std::string_view bytes) {
    std::vector<Field> fields;
    while (!bytes.empty()) {
        const std::uint64_t key = take_varint(bytes);
        Field field;
        field.number = key >> 3;
        if ((key & 7) == 0) {
            field.value = take_varint(bytes);
        } else if ((key & 7) == 1) {
            REQUIRE(bytes.size() >= 8);
            std::uint64_t bits = 0;
            for (int i = 7; i >= 0; --i) {
                bits = bits << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
            }
            field.real = std::bit_cast<double>(bits);
            bytes.remove_prefix(8);
        } else {
            REQUIRE((key & 7) == 2);
            const std::uint64_t size = take_varint(bytes);
            REQUIRE(size <= bytes.size());
            field.text = bytes.substr(0, size);
            bytes.remove_prefix(size);
        }
        fields.push_back(field);
    }
    return fields;
}

/// The first field of that number; none fails the test.
inline Field field_of(std::string_view bytes, std::uint64_t number) {
    for (const Field& field : fields_of(bytes)) {
        if (field.number == number) {
            return field;
        }
    }
    FAIL("no field " << number);
    return {};
}

inline bool has_field(std::string_view bytes, std::uint64_t number) {
    for (const Field& field : fields_of(bytes)) {
        if (field.number == number) {
            return true;
        }
    }
    return false;
}

}  // namespace memlab::test
