#include "report/json_output.hpp"

namespace memlab::report {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

/// The length of the well-formed UTF-8 sequence that `text` begins with, or, negated, how many
/// bytes one U+FFFD stands for (the longest prefix that could have become one: Unicode's own
/// recommendation, which every other decoder follows).
int utf8_length(std::string_view text) {
    const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    int length = 0;
    unsigned low = 0x80;
    unsigned high = 0xbf;  // of the second byte: excludes overlong forms, surrogates, > U+10FFFF
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xc2 && lead <= 0xdf) {
        length = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        length = 3;
        low = lead == 0xe0 ? 0xa0 : low;
        high = lead == 0xed ? 0x9f : high;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        length = 4;
        low = lead == 0xf0 ? 0x90 : low;
        high = lead == 0xf4 ? 0x8f : high;
    } else {
        return -1;
    }
    for (int i = 1; i < length; ++i) {
        if (static_cast<std::size_t>(i) >= text.size()) {
            return -i;
        }
        const unsigned next = byte(static_cast<std::size_t>(i));
        if (next < low || next > high) {
            return -i;
        }
        low = 0x80;
        high = 0xbf;
    }
    return length;
}

}  // namespace

void JsonOutput::text(std::string_view value) {
    constexpr char hex[] = "0123456789abcdef";
    put('"');
    while (!value.empty()) {
        const auto c = static_cast<unsigned char>(value[0]);
        std::size_t taken = 1;
        if (c == '"' || c == '\\') {
            put('\\');
            put(value[0]);
        } else if (c == '\n') {
            put("\\n");
        } else if (c == '\t') {
            put("\\t");
        } else if (c < 0x20 || c == 0x7f) {
            put("\\u00");
            put(hex[c >> 4]);
            put(hex[c & 15]);
        } else if (c < 0x80) {
            put(value[0]);
        } else {
            const int length = utf8_length(value);
            taken = static_cast<std::size_t>(length > 0 ? length : -length);
            put(length > 0 ? value.substr(0, taken) : replacement);
        }
        value.remove_prefix(taken);
    }
    put('"');
}

}  // namespace memlab::report
