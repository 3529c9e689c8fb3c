// UTF-8 validation of untrusted text: file names, symbols, marks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace memlab::model {

/// U+FFFD, the replacement for invalid UTF-8.
inline constexpr std::string_view utf8_replacement = "\xef\xbf\xbd";

/// The length of the well-formed UTF-8 sequence at the start of `text`. If it is malformed, the
/// negated number of bytes to replace by one U+FFFD (the maximal valid prefix, as Unicode
/// recommends and other decoders do). `text` must not be empty.
inline int utf8_length(std::string_view text) {
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

/// `text` with U+FFFD for what is not well formed.
inline std::string valid_utf8(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const int length = utf8_length(text);
        const auto taken = static_cast<std::size_t>(length > 0 ? length : -length);
        out.append(length > 0 ? text.substr(0, taken) : utf8_replacement);
        text.remove_prefix(taken);
    }
    return out;
}

}  // namespace memlab::model
