// A field of a line of the run's manifest, which processes write and memlab-run reads: fields are
// separated by tabs and lines by newlines, both of which a path may contain.
#pragma once

#include <string>
#include <string_view>

namespace memlab::model {

/// Tabs, newlines and backslashes become \t, \n and \\.
inline std::string escaped_field(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '\t':
                out += "\\t";
                break;
            case '\n':
                out += "\\n";
                break;
            case '\\':
                out += "\\\\";
                break;
            default:
                out += c;
                break;
        }
    }
    return out;
}

/// The reverse.
inline std::string unescaped_field(std::string_view field) {
    std::string out;
    for (std::size_t i = 0; i < field.size(); ++i) {
        if (field[i] != '\\' || i + 1 == field.size()) {
            out += field[i];
            continue;
        }
        const char c = field[++i];
        out += c == 't' ? '\t' : c == 'n' ? '\n' : c;
    }
    return out;
}

}  // namespace memlab::model
