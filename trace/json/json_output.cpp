#include "trace/json/json_output.hpp"

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

}  // namespace memlab::report
