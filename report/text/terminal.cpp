#include "report/text/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace memlab::report {

namespace {

const char* environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && value[0] != '\0' ? value : nullptr;
}

bool locale_is_utf8() {
    const char* locale = environment("LC_ALL");
    if (locale == nullptr) {
        locale = environment("LC_CTYPE");
    }
    if (locale == nullptr) {
        locale = environment("LANG");
    }
    if (locale == nullptr) {
        return false;
    }
    std::string lower = locale;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
}

/// Sets the widths of `style`; `columns`: as asked for, or 0.
void set_width(int fd, int columns, Style& style) {
    constexpr int min_width = 40;
    constexpr int max_layout = 120;
    winsize size{};
    if (const char* text = environment("COLUMNS"); text != nullptr && columns == 0) {
        columns =
            static_cast<int>(std::clamp<long>(std::strtol(text, nullptr, 10), 0, unlimited_width));
    }
    if (columns == 0 && isatty(fd) != 0) {
        const bool known = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
        columns = known ? size.ws_col : style.width;
    }
    if (columns == 0) {
        style.line_width = unlimited_width;
        return;
    }
    style.line_width = std::max(columns, min_width);
    style.width = std::min(style.line_width, max_layout);
}

/// The length of the UTF-8 character at `i`; 0 if invalid.
std::size_t character_length(std::string_view text, std::size_t i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80                    ? 1
                               : lead >= 0xc2 && lead <= 0xdf ? 2
                               : lead >= 0xe0 && lead <= 0xef ? 3
                               : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                              : 0;
    if (length == 0 || i + length > text.size()) {
        return 0;
    }
    for (std::size_t k = 1; k < length; ++k) {
        if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

bool is_continuation(char c) {
    return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

}  // namespace

Style style_for(int fd, ColorMode mode, bool force_ascii, int columns) {
    Style style;
    set_width(fd, columns, style);
    style.ascii = force_ascii || !locale_is_utf8();
    const char* term = environment("TERM");
    const bool capable = isatty(fd) != 0 && environment("NO_COLOR") == nullptr &&
                         (term == nullptr || std::strcmp(term, "dumb") != 0);
    style.color = mode == ColorMode::always || (mode == ColorMode::automatic && capable);
    return style;
}

std::size_t display_width(std::string_view text) {
    std::size_t width = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\x1b') {
            while (i < text.size() && text[i] != 'm') {
                ++i;
            }
        } else if (!is_continuation(text[i])) {
            ++width;
        }
    }
    return width;
}

bool is_control(std::string_view character) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
    switch (character.size()) {
        case 1:
            return byte(0) < 0x20 || byte(0) == 0x7f;
        case 2:
            return (byte(0) == 0xc2 && byte(1) < 0xa0) || character == "\u061c";
        case 3:
            return (character >= "\u200e" && character <= "\u200f") ||
                   (character >= "\u2028" && character <= "\u202e") ||
                   (character >= "\u2066" && character <= "\u2069");
        default:
            return false;
    }
}

std::string printable(std::string_view text, bool ascii) {
    std::string result;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = character_length(text, i);
        if (length == 0 || is_control(text.substr(i, length)) || (length > 1 && ascii)) {
            result += '?';
        } else {
            result += text.substr(i, length);
        }
        i += std::max<std::size_t>(length, 1);
    }
    return result;
}

std::string shorten_end(const std::string& text, std::size_t width, bool ascii) {
    if (display_width(text) <= width) {
        return text;
    }
    const std::string_view ellipsis = ascii ? "..." : "…";
    const std::size_t keep = width - std::min(width, display_width(ellipsis));
    std::size_t end = 0;
    for (std::size_t kept = 0; end < text.size(); ++end) {
        if (!is_continuation(text[end]) && kept++ == keep) {
            break;
        }
    }
    return text.substr(0, end) + std::string(ellipsis);
}

std::string shorten_begin(const std::string& text, std::size_t width, bool ascii) {
    if (display_width(text) <= width) {
        return text;
    }
    const std::string_view ellipsis = ascii ? "..." : "…";
    const std::size_t keep = width - std::min(width, display_width(ellipsis));
    std::size_t begin = text.size();
    for (std::size_t kept = 0; begin > 0 && kept < keep;) {
        --begin;
        if (!is_continuation(text[begin])) {
            ++kept;
        }
    }
    return std::string(ellipsis) + text.substr(begin);
}

namespace {

std::size_t end_of_word(std::string_view text, std::size_t begin) {
    return std::min(text.find(' ', begin), text.size());
}

/// "GiB", "GiB,", "ms)."
bool is_unit(std::string_view word) {
    constexpr std::string_view units[] = {"B",   "KiB", "MiB", "GiB", "TiB",
                                          "PiB", "ns",  "us",  "ms",  "s"};
    const std::size_t size = std::min(word.find_last_not_of(".,;:)") + 1, word.size());
    return std::find(std::begin(units), std::end(units), word.substr(0, size)) != std::end(units);
}

}  // namespace

std::string wrap(const std::string& text, std::size_t width, std::string_view indent) {
    std::string result;
    std::size_t column = 0;
    std::size_t i = 0;
    while (i < text.size()) {
        std::size_t end = end_of_word(text, i);
        if (end < text.size() && end > i && text[end - 1] >= '0' && text[end - 1] <= '9') {
            const std::size_t next = end_of_word(text, end + 1);
            end = is_unit(std::string_view(text).substr(end + 1, next - end - 1)) ? next : end;
        }
        const std::string_view word = std::string_view(text).substr(i, end - i);
        const std::size_t length = display_width(word);
        if (column == 0) {
            result += word;
            column = length;
        } else if (column + 1 + length > width) {
            result += '\n';
            result += indent;
            result += word;
            column = length;
        } else {
            result += ' ';
            result += word;
            column += 1 + length;
        }
        i = end + 1;
    }
    return result;
}

}  // namespace memlab::report
