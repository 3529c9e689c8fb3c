#include "tools/top/lines.hpp"

#include <string_view>

namespace memlab::tools {
namespace {

std::string_view color_of(Tint tint, const report::Style& style) {
    switch (tint) {
        case Tint::plain:
            return "";
        case Tint::bold:
        case Tint::chosen:
            return style.bold();
        case Tint::dim:
            return style.dim();
        case Tint::good:
            return style.green();
        case Tint::warning:
            return style.yellow();
        case Tint::bad:
            return style.red();
        case Tint::name:
            return style.cyan();
    }
    return "";
}

}  // namespace

std::string Line::text() const {
    std::string all;
    for (const Span& span : spans) {
        all += span.text;
    }
    return all;
}

std::size_t Line::width() const {
    std::size_t sum = 0;
    for (const Span& span : spans) {
        sum += report::display_width(span.text);
    }
    return sum;
}

void Line::cut(std::size_t columns, bool ascii) {
    std::size_t used = 0;
    for (std::size_t i = 0; i < spans.size(); ++i) {
        const std::size_t width = report::display_width(spans[i].text);
        if (used + width > columns) {
            // An ellipsis of three dots needs its room.
            const std::size_t room = columns - used;
            spans[i].text =
                room < 3 ? std::string(room, '.') : report::shorten_end(spans[i].text, room, ascii);
            spans.resize(i + 1);
            return;
        }
        used += width;
    }
}

std::string right_in(const std::string& text, std::size_t width) {
    const std::size_t has = report::display_width(text);
    return has >= width ? text : std::string(width - has, ' ') + text;
}

std::string left_in(const std::string& text, std::size_t width, bool ascii) {
    const std::string cut = report::shorten_end(text, width, ascii);
    return cut + std::string(width - report::display_width(cut), ' ');
}

std::string plain_text(const std::vector<Line>& lines, const report::Style& style) {
    std::string out;
    for (const Line& line : lines) {
        std::string text;
        for (const Span& span : line.spans) {
            const std::string_view color = color_of(span.tint, style);
            text += color.empty() ? span.text
                                  : std::string(color) + span.text + std::string(style.reset());
        }
        text.erase(text.find_last_not_of(' ') + 1);
        out += text + '\n';
    }
    return out;
}

}  // namespace memlab::tools
