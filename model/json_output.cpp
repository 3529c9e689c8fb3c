#include "model/json_output.hpp"

#include <cmath>
#include <iterator>
#include <nlohmann/detail/conversions/to_chars.hpp>

#include "model/utf8.hpp"

namespace memlab::model {

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

// std::to_chars would bring 120 KiB of tables into the preloaded library, and printf needs more
// stack than a signal handler may have.
void JsonOutput::number(double value) {
    constexpr double exact = 9007199254740992.0;  // 2^53
    if (value > -exact && value < exact && value == std::trunc(value)) {
        number(static_cast<std::int64_t>(value));
        return;
    }
    separate();
    char digits[64];
    const char* const end = nlohmann::detail::to_chars(std::begin(digits), std::end(digits), value);
    put(std::string_view(digits, static_cast<std::size_t>(end - digits)));
}

}  // namespace memlab::model
