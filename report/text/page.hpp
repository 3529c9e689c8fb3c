// A page of text in the making: lines without trailing blanks, headings, paragraphs that fit, and
// the few colours. Everything that comes from a recording passes clean() before it is added.
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

    /// The columns that are left beside `used` ones; 20 at least, however narrow it is.
    std::size_t room_beside(std::size_t used) const {
        return width_ > used + 20 ? width_ - used : 20;
    }

    void line(const std::string& text) {
        out_ += text;
        out_.erase(out_.find_last_not_of(' ') + 1);
        out_ += '\n';
    }

    /// The text wrapped, its first line behind `first`, the others below it and `hanging` columns
    /// further in.
    void paragraph(const std::string& first, const std::string& text, std::size_t hanging = 0) {
        const std::string indent(display_width(first) + hanging, ' ');
        line(first + wrap(text, width_ - indent.size(), indent));
    }

    /// A dim line that belongs to the one before, from a column on, as far as it fits; none where
    /// `text` is empty.
    void note_below(std::size_t column, const std::string& text) {
        if (!text.empty()) {
            line(std::string(column, ' ') +
                 dim(shorten_end(clean(text), room_beside(column), style_.ascii)));
        }
    }

    /// Whole sentences, each behind a warning sign, after an empty line.
    void warnings(const std::vector<std::string>& notes) {
        if (notes.empty()) {
            return;
        }
        line("");
        for (const std::string& note : notes) {
            paragraph("  " + yellow(style_.ascii ? "! " : "⚠ "), clean(note));
        }
    }

    /// A heading in the middle of a page stands behind an empty line.
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

    std::string take() { return std::move(out_); }

  private:
    std::string paint(std::string_view color, const std::string& text) const {
        return text.empty() ? text : std::string(color) + text + std::string(style_.reset());
    }

    Style style_;
    std::size_t width_;
    std::string out_;
};

}  // namespace memlab::report
