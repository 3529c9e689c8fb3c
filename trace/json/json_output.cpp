#include "trace/json/json_output.hpp"

#include <cstdio>
#include <cstdlib>

#include "trace/json/utf8.hpp"

namespace memlab::report {

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
            put(length > 0 ? value.substr(0, taken) : utf8_replacement);
        }
        value.remove_prefix(taken);
    }
    put('"');
}

// By the C library: std::to_chars brings 120 KiB of tables into the preloaded library.
void JsonOutput::number(double value) {
    separate();
    char digits[64];
    int size = 0;
    for (const int precision : {15, 16, 17}) {
        size = std::snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (std::strtod(digits, nullptr) == value) {
            break;
        }
    }
    // The decimal point is the locale's, of one byte or more.
    constexpr std::string_view others = "0123456789+-e";
    const std::string_view all(digits, static_cast<std::size_t>(size));
    const std::size_t point = all.find_first_not_of(others);
    put(all.substr(0, point));
    if (point != std::string_view::npos) {
        put('.');
        put(all.substr(all.find_first_of(others, point)));
    }
}

}  // namespace memlab::report
