// The lines of memlab-top's screen: pieces of text with a tint each, cut to the screen's columns.
// What they are shown by, a terminal or plain text, is somebody else's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/text/terminal.hpp"

namespace memlab::tools {

enum class Tint : std::uint8_t { plain, bold, dim, chosen, good, warning, bad, name };

struct Span {
    std::string text;
    Tint tint = Tint::plain;
};

struct Line {
    std::vector<Span> spans;

    Line() = default;
    explicit Line(std::string text, Tint tint = Tint::plain) { add(std::move(text), tint); }

    Line& add(std::string text, Tint tint = Tint::plain) {
        if (!text.empty()) {
            spans.push_back({std::move(text), tint});
        }
        return *this;
    }
    std::string text() const;
    std::size_t width() const;
    /// Cut, with an ellipsis where something is missing.
    void cut(std::size_t columns, bool ascii);
};

/// How the screen is.
struct Screen {
    std::size_t rows = 24;
    std::size_t columns = 80;
    bool ascii = false;
    bool arguments = true;  ///< of commands; else programs' names
};

/// `text` at the right of `width` columns, cut if it is longer; or at the left.
std::string right_in(const std::string& text, std::size_t width);
std::string left_in(const std::string& text, std::size_t width, bool ascii);

/// One on each line, as plain text in the colours of `style`.
std::string plain_text(const std::vector<Line>& lines, const report::Style& style);

}  // namespace memlab::tools
