// The bytes of messages: those of the encoding's documentation, and the edges of each type.
#include "report/exports/protobuf.hpp"

#include <limits>

#include "tests/catch.hpp"
#include "tests/unit/export/messages.hpp"

using memlab::report::exports::Message;
using namespace memlab::test;
using namespace std::string_literals;

TEST_CASE("Messages are the documented examples") {
    Message number;
    number.number(1, 150);
    CHECK(number.bytes() == "\x08\x96\x01");
    Message text;
    text.text(2, "testing");
    CHECK(text.bytes() == "\x12\x07testing");
    Message outer;
    outer.message(3, number);
    CHECK(outer.bytes() == "\x1a\x03\x08\x96\x01");
    Message packed;
    packed.packed(6, {3, 270, 86942});
    CHECK(packed.bytes() == "\x32\x06\x03\x8e\x02\x9e\xa7\x05");
    Message real;
    real.real(1, 1.0);
    CHECK(real.bytes() == "\x09\0\0\0\0\0\0\xf0\x3f"s);
}

TEST_CASE("Numbers keep their value at every length") {
    for (int bit = 0; bit < 64; ++bit) {
        const std::uint64_t power = std::uint64_t{1} << bit;
        for (const std::uint64_t value : {power - 1, power, power + 1}) {
            Message message;
            message.number(5, value);
            CHECK(field_of(message.bytes(), 5).value == value);
            CHECK(message.bytes().size() <= 11);
        }
    }
    Message message;
    message.number((1U << 29) - 1, std::numeric_limits<std::uint64_t>::max());
    CHECK(field_of(message.bytes(), (1U << 29) - 1).value ==
          std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("Texts of every length and content are kept, and messages can be used again") {
    Message message;
    CHECK(message.empty());
    for (const std::size_t size : {0, 1, 127, 128, 16383, 16384, 100000}) {
        const std::string text(size, '\xff');
        message.clear();
        message.text(7, text);
        message.real(8, -0.5);
        CHECK(field_of(message.bytes(), 7).text == text);
        CHECK(field_of(message.bytes(), 8).real == -0.5);
    }
    message.clear();
    CHECK(message.empty());
}
