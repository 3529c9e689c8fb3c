// Texts as CPython keeps them, and as they must never crash: every width, cut, foreign, too long.
#include "profiler/python/layouts.hpp"
#include "profiler/python/objects.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "tests/catch.hpp"

using namespace memlab::profiler::python;

namespace {

const int str_type = 0;
const int bytes_type = 0;
const Types types{nullptr, &str_type, &bytes_type};

// A str as 3.11 or later has it. `ascii` needs width 1.
template <class Character>
std::vector<unsigned char> text_object(const Layout& layout, const std::vector<Character>& text,
                                       bool ascii, bool compact = true,
                                       const void* type = &str_type) {
    const std::size_t begin = ascii ? layout.ascii_size : layout.compact_size;
    std::vector<unsigned char> object(begin + sizeof(void*) + text.size() * sizeof(Character));
    const auto put = [&](std::size_t offset, const auto& value) {
        std::memcpy(object.data() + offset, &value, sizeof(value));
    };
    put(object_type, type);
    put(text_length, std::int64_t(text.size()));
    put(text_state,
        std::uint32_t(sizeof(Character) << 2 | (compact ? 1U : 0U) << 5 | (ascii ? 1U : 0U) << 6));
    if (compact && !text.empty()) {
        std::memcpy(object.data() + begin, text.data(), text.size() * sizeof(Character));
    } else if (!compact) {
        put(layout.compact_size, text.data());
    }
    return object;
}

std::string read_text(const Layout& layout, const std::vector<unsigned char>& object) {
    Characters characters;
    return get_characters(layout, types, object.data(), &characters) ? utf8(characters) : "no text";
}

}  // namespace

TEST_CASE("texts of every width become UTF-8") {
    for (const int minor : {10, 11, 12, 13, 14, 15}) {
        const Layout& layout = *find_layout(minor);
        const std::vector<unsigned char> ascii = {'f', 'o', '<', 'x', '>'};
        CHECK(read_text(layout, text_object(layout, ascii, true)) == "fo<x>");
        const std::vector<unsigned char> latin = {0xe4, 'b', 0xff};
        CHECK(read_text(layout, text_object(layout, latin, false)) == "äbÿ");
        const std::vector<std::uint16_t> two = {0x65e5, 'b', 0xd800, 0x7ff, 0xe000};
        CHECK(read_text(layout, text_object(layout, two, false)) ==
              "\xe6\x97\xa5"
              "b\xef\xbf\xbd\xdf\xbf\xee\x80\x80");
        const std::vector<std::uint32_t> four = {0x1f600, 0x110000, 0x10ffff};
        CHECK(read_text(layout, text_object(layout, four, false)) ==
              "\xf0\x9f\x98\x80\xef\xbf\xbd\xf4\x8f\xbf\xbf");
        CHECK(read_text(layout, text_object(layout, latin, false, false)) == "äbÿ");
        CHECK(read_text(layout, text_object(layout, std::vector<unsigned char>(), true)).empty());
    }
}

TEST_CASE("objects that are no strings are refused, long strings are cut") {
    const Layout& layout = *find_layout(12);
    const std::vector<unsigned char> letters(10000, 'a');
    const std::string text = read_text(layout, text_object(layout, letters, true));
    CHECK(text == std::string(4096, 'a') + "...");
    CHECK(read_text(layout, text_object(layout, letters, true, true, &letters)) == "no text");
    std::vector<unsigned char> object = text_object(layout, letters, true);
    const std::int64_t negative = -1;
    std::memcpy(object.data() + text_length, &negative, sizeof(negative));
    CHECK(read_text(layout, object) == "no text");
    object = text_object(layout, letters, true);
    const std::uint32_t no_width = 3U << 2 | 1U << 5 | 1U << 6;
    std::memcpy(object.data() + text_state, &no_width, sizeof(no_width));
    CHECK(read_text(layout, object) == "no text");
    Characters characters;
    CHECK_FALSE(get_characters(layout, types, nullptr, &characters));
    CHECK(get_bytes(types, nullptr).empty());
    CHECK(get_bytes(types, object.data()).empty());
}

TEST_CASE("only tested Python versions have a layout") {
    CHECK(find_layout(8) == nullptr);
    CHECK(find_layout(16) == nullptr);
    CHECK(find_layout(-1) == nullptr);
    CHECK(tested_versions() == "3.9, 3.10, 3.11, 3.12, 3.13, 3.14, 3.15");
}
