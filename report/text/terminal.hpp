// Terminal capabilities (colour, width, Unicode) and text functions that respect them. Capabilities
// are determined once, from the output stream and the environment, and passed on as values, so that
// rendering is pure and testable.
#pragma once

#include <string>
#include <string_view>

namespace memlab::report {

enum class ColorMode { automatic, always, never };

/// How to render.
struct Style {
    int width = 80;      ///< of pictures and paragraphs, and what tables are laid out for
    int line_width = 0;  ///< what a line with a name at its end may have; 0: `width`
    bool ascii = false;
    bool color = false;

    std::size_t line_columns() const {
        return static_cast<std::size_t>(line_width == 0 ? width : line_width);
    }

    std::string_view bold() const { return color ? "\x1b[1m" : ""; }
    std::string_view dim() const { return color ? "\x1b[2m" : ""; }
    std::string_view red() const { return color ? "\x1b[31m" : ""; }
    std::string_view yellow() const { return color ? "\x1b[33m" : ""; }
    std::string_view green() const { return color ? "\x1b[32m" : ""; }
    std::string_view blue() const { return color ? "\x1b[34m" : ""; }
    std::string_view magenta() const { return color ? "\x1b[35m" : ""; }
    std::string_view cyan() const { return color ? "\x1b[36m" : ""; }
    std::string_view reset() const { return color ? "\x1b[0m" : ""; }
};

/// A Style::line_width that cuts nothing.
inline constexpr int unlimited_width = 1 << 20;

/// The style for file descriptor `fd`. Colour: automatic means on a terminal, unless NO_COLOR is
/// not empty or TERM is "dumb". ASCII: if forced, or if the first of LC_ALL, LC_CTYPE and LANG that
/// is set does not name UTF-8. Width: `columns`, else COLUMNS, else the terminal's, at least 40;
/// pictures and paragraphs have at most 120 of it. Without any of these (a pipe, a file) these have
/// 80, and lines are not cut.
Style style_for(int fd, ColorMode mode, bool force_ascii, int columns = 0);

/// The columns of UTF-8 text: counts characters, not bytes, and no escape sequences. Wide
/// characters count as one (file names in CJK scripts may shift a table).
std::size_t display_width(std::string_view text);

/// Whether a character of UTF-8 is one that a terminal obeys and does not show: C0 and C1 controls,
/// those of the direction of writing (they reverse what stands beside them), ends of lines.
bool is_control(std::string_view character);

/// Replaces control characters, invalid UTF-8 and, with `ascii`, all characters beyond ASCII by
/// '?', so that strings of a recording, which are not trusted, cannot send escape sequences to the
/// terminal.
std::string printable(std::string_view text, bool ascii);

/// At most `width` columns: the end is cut and marked with an ellipsis.
std::string shorten_end(const std::string& text, std::size_t width, bool ascii);

/// At most `width` columns: the beginning is cut and marked with an ellipsis, as suits a path.
std::string shorten_begin(const std::string& text, std::size_t width, bool ascii);

/// Breaks `text` into lines of at most `width` columns between words, but not between a number and
/// its unit. Lines after the first begin with `indent`.
std::string wrap(const std::string& text, std::size_t width, std::string_view indent);

}  // namespace memlab::report
