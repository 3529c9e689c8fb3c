#include "report/exports/output.hpp"

#include "model/utf8.hpp"

namespace memlab::report::exports {

std::string clean_name(std::string_view text) {
    std::string clean;
    clean.reserve(text.size());
    while (!text.empty()) {
        const int length = model::utf8_length(text);
        const auto taken = static_cast<std::size_t>(length > 0 ? length : -length);
        const auto first = static_cast<unsigned char>(text[0]);
        const auto second = static_cast<unsigned char>(taken > 1 ? text[1] : 0);
        const bool c1 = length == 2 && first == 0xc2 && second < 0xa0;
        // XML forbids the noncharacters U+FFFE and U+FFFF.
        const bool none = length == 3 && first == 0xef && second == 0xbf &&
                          static_cast<unsigned char>(text[2]) >= 0xbe;
        if (length < 0 || none) {
            clean += model::utf8_replacement;
        } else if (first < 0x20 || first == 0x7f || c1) {
            clean += ' ';
        } else {
            clean += text.substr(0, taken);
        }
        text.remove_prefix(taken);
    }
    return clean;
}

std::string hexadecimal(std::uint64_t value) {
    char digits[24] = "0x";
    const auto end = std::to_chars(digits + 2, digits + sizeof digits, value, 16);
    return {digits, end.ptr};
}

}  // namespace memlab::report::exports
