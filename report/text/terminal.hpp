// What the terminal can show: colour, width, Unicode. Decided once, from the stream that is written
// to and the environment, and passed on as values, so that rendering itself is pure and testable.
#pragma once

#include <string>
#include <string_view>

namespace memlab::report {

enum class ColorMode { automatic, always, never };

/// How to render.
struct Style {
    int width = 80;
    bool ascii = false;
    bool color = false;

    std::string_view bold() const { return color ? "\x1b[1m" : ""; }
    std::string_view dim() const { return color ? "\x1b[2m" : ""; }
    std::string_view red() const { return color ? "\x1b[31m" : ""; }
    std::string_view yellow() const { return color ? "\x1b[33m" : ""; }
    std::string_view cyan() const { return color ? "\x1b[36m" : ""; }
    std::string_view reset() const { return color ? "\x1b[0m" : ""; }
};

/// The style for file descriptor `fd`. Colour: automatic means on a terminal, unless NO_COLOR is
/// set and not empty or TERM is "dumb". ASCII: when asked for, or when LC_ALL, LC_CTYPE and LANG
/// (the first that is set) do not name UTF-8. Width: COLUMNS, else the terminal's, else 80; 40 at
/// least, 120 at most (longer lines are no easier to read).
Style style_for(int fd, ColorMode mode, bool force_ascii);

/// Columns that UTF-8 text takes: characters, not bytes; escape sequences take none. Characters
/// wider than one column are counted as one (file names in CJK scripts may shift a table).
std::size_t display_width(std::string_view text);

/// `text` with control characters replaced, so that a recording (file names, arguments, symbols:
/// all chosen by someone else) cannot write escape sequences to the reader's terminal. Bytes that
/// are no UTF-8, and with `ascii` all others beyond ASCII, become '?'.
std::string printable(std::string_view text, bool ascii);

/// At most `width` columns: the end is cut and marked with an ellipsis.
std::string shorten_end(const std::string& text, std::size_t width, bool ascii);

/// At most `width` columns: the beginning is cut, as suits a path.
std::string shorten_begin(const std::string& text, std::size_t width, bool ascii);

/// `text` broken into lines of at most `width` columns between words, but not between a number and
/// its unit.
std::string wrap(const std::string& text, std::size_t width, std::string_view indent);

}  // namespace memlab::report
