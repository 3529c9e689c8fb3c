// Builds a page of terminal text: lines without trailing blanks, headings, wrapped paragraphs and
// colours. Strings of a recording must pass clean() before they are added.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/text/terminal.hpp"

namespace memlab::report {

/// Thread-safety: none.
class Page {
  public:
    explicit Page(const Style& style)
        : style_(style), width_(static_cast<std::size_t>(style.width)) {}

    const Style& style() const { return style_; }
    std::size_t width() const { return width_; }
    bool empty() const { return out_.empty(); }

    /// What is left of a line for a name, after `used` columns, but at least 20.
    std::size_t remaining_width(std::size_t used) const {
        const std::size_t columns = style_.line_columns();
        return columns > used + 20 ? columns - used : 20;
    }

    void line(const std::string& text) {
        out_ += text;
        out_.erase(out_.find_last_not_of(' ') + 1);
        out_ += '\n';
    }

    /// What another page took.
    void lines(const std::string& text) { out_ += text; }

    /// Wraps `text` after `first`; further lines are indented by the width of `first` plus
    /// `hanging`. The text is in `color`, if any.
    void paragraph(const std::string& first, const std::string& text, std::size_t hanging = 0,
                   std::string_view color = {}) {
        const std::string indent(display_width(first) + hanging, ' ');
        const std::string wrapped = wrap(text, width_ - indent.size(), indent);
        line(first + (color.empty() ? wrapped : paint(color, wrapped)));
    }

    /// A dim line indented to `column`, which explains the previous line; cut to fit. None if
    /// `text` is empty.
    void note_below(std::size_t column, const std::string& text) {
        if (!text.empty()) {
            line(std::string(column, ' ') +
                 dim(shorten_end(clean(text), remaining_width(column), style_.ascii)));
        }
    }

    /// Whole sentences, each with a warning sign, after an empty line.
    void warnings(const std::vector<std::string>& notes) {
        if (notes.empty()) {
            return;
        }
        line("");
        for (const std::string& note : notes) {
            paragraph("  " + yellow(style_.ascii ? "! " : "⚠ "), clean(note));
        }
    }

    /// A heading, after an empty line unless it is the first line.
    void heading(const std::string& title, const std::string& note = "") {
        if (!out_.empty()) {
            line("");
        }
        line(bold(title) + (note.empty() ? "" : dim("  " + note)));
    }

    /// printable() in this page's characters.
    std::string clean(std::string_view text) const { return printable(text, style_.ascii); }

    std::string bold(const std::string& text) const { return paint(style_.bold(), text); }
    std::string dim(const std::string& text) const { return paint(style_.dim(), text); }
    std::string red(const std::string& text) const { return paint(style_.red(), text); }
    std::string yellow(const std::string& text) const { return paint(style_.yellow(), text); }
    std::string cyan(const std::string& text) const { return paint(style_.cyan(), text); }
    std::string separator() const { return style_.ascii ? ", " : " · "; }

    /// All of it; the page is empty then.
    std::string take() { return std::exchange(out_, {}); }

    std::string paint(std::string_view color, const std::string& text) const {
        return text.empty() ? text : std::string(color) + text + std::string(style_.reset());
    }

  private:
    Style style_;
    std::size_t width_;
    std::string out_;
};

}  // namespace memlab::report
