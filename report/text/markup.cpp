#include "report/text/markup.hpp"

#include <string_view>

#include "report/text/terminal.hpp"

namespace memlab::report {

std::string escaped_markdown(const std::string& text) {
    // Character references: backslash escapes do not work everywhere in a table.
    constexpr std::string_view special = "&<>|`*_[]\\~#@!$";
    std::string out;
    for (const char c : printable(text, false)) {
        if (special.find(c) == std::string_view::npos) {
            out += c;
        } else {
            out.append("&#").append(std::to_string(static_cast<int>(c))).append(";");
        }
    }
    return out;
}

std::string csv_field(const std::string& text) {
    constexpr std::string_view formula = "=+-@";
    std::string field = printable(text, false);
    if (!field.empty() && formula.find(field.front()) != std::string_view::npos) {
        field.insert(0, "'");
    }
    if (field.find_first_of(",\"") == std::string::npos) {
        return field;
    }
    std::string quoted = "\"";
    for (const char c : field) {
        quoted.append(c == '"' ? 2 : 1, c);
    }
    return quoted + "\"";
}

}  // namespace memlab::report
