#include "report/exports/output.hpp"

#include "model/utf8.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report::exports {

std::string clean_name(std::string_view text) {
    std::string clean;
    clean.reserve(text.size());
    while (!text.empty()) {
        const int length = model::utf8_length(text);
        const auto taken = static_cast<std::size_t>(length > 0 ? length : -length);
        // XML forbids the noncharacters U+FFFE and U+FFFF.
        const bool none = length == 3 && text >= "\ufffe" && text.substr(0, 3) <= "\uffff";
        if (length < 0 || none) {
            clean += model::utf8_replacement;
        } else if (report::is_control(text.substr(0, taken))) {
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
