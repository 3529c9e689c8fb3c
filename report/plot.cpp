#include "report/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "report/units.hpp"

namespace memlab::report {

namespace {

struct Column {
    std::uint64_t allocated = 0;
    std::uint64_t reserved = 0;
};

struct Glyphs {
    std::array<const char*, 9> allocated;  ///< eighths of a cell, from empty to full
    const char* reserved;
    const char* axis;
    const char* tick;
    const char* corner;
    const char* floor;
};

constexpr Glyphs unicode_glyphs = {
    {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, "░", "│", "┤", "└", "─"};
constexpr Glyphs ascii_glyphs = {
    {" ", "#", "#", "#", "#", "#", "#", "#", "#"}, ".", "|", "+", "+", "-"};

/// Where `time` falls among `columns` that span [0, end).
std::size_t column_of(std::uint64_t time, std::uint64_t end, std::size_t columns) {
    const double place =
        static_cast<double>(time) / static_cast<double>(end) * static_cast<double>(columns);
    return std::min(static_cast<std::size_t>(place), columns - 1);
}

std::vector<Column> columns_of(const std::vector<PlotPoint>& points, std::uint64_t end,
                               std::size_t count) {
    std::vector<Column> columns(count);
    for (std::size_t i = 0; i < points.size(); ++i) {
        const std::size_t first = column_of(points[i].time_ns, end, count);
        std::size_t last = count - 1;
        if (i + 1 < points.size()) {
            last = column_of(points[i + 1].time_ns, end, count);
            // The next value begins within its column and is drawn there anyway; the old one
            // reaches into that column only if it holds some of it.
            const double edge = static_cast<double>(last) / static_cast<double>(count);
            const bool on_edge =
                static_cast<double>(points[i + 1].time_ns) <= edge * static_cast<double>(end);
            if (on_edge && last > first) {
                --last;
            }
        }
        for (std::size_t c = first; c <= last; ++c) {
            columns[c].allocated = std::max(columns[c].allocated, points[i].allocated);
            columns[c].reserved = std::max(columns[c].reserved, points[i].reserved);
        }
    }
    return columns;
}

std::string padded(const std::string& text, std::size_t width) {
    return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

void trim_right(std::string& line) {
    line.erase(line.find_last_not_of(' ') + 1);
}

/// Switches colour only where it changes: a row of 60 cells is not 60 escape sequences.
class RowWriter {
  public:
    explicit RowWriter(const PlotOptions& options) : options_(options) {}

    void put(std::string_view color, const char* glyph) {
        if (color != current_) {
            leave();
            text_ += color;
            current_ = color;
        }
        text_ += glyph;
    }

    std::string take() {
        leave();
        trim_right(text_);
        return std::move(text_);
    }

  private:
    void leave() {
        if (!current_.empty()) {
            text_ += options_.reset;
            current_ = {};
        }
    }

    const PlotOptions& options_;
    std::string_view current_;
    std::string text_;
};

/// One row of the area: cells are eighths in Unicode, whole cells in ASCII.
void draw_row(RowWriter& out, const std::vector<Column>& columns, double top, int row, int height,
              const PlotOptions& options, const Glyphs& glyphs) {
    const int steps = 8;
    const int base = (height - 1 - row) * steps;  // eighths below this row
    const double scale = static_cast<double>(height * steps) / top;
    for (const Column& column : columns) {
        int allocated =
            static_cast<int>(std::lround(static_cast<double>(column.allocated) * scale));
        int reserved = static_cast<int>(std::lround(static_cast<double>(column.reserved) * scale));
        // What exists is seen, however small.
        allocated = std::max(allocated, column.allocated != 0 ? 1 : 0);
        reserved = std::max(reserved, column.reserved != 0 ? 1 : 0);
        const int here = std::clamp(allocated - base, 0, steps);
        const int shade = std::clamp(reserved - base, 0, steps);
        const bool draw_allocated = options.ascii ? here >= 4 || (here > 0 && base == 0) : here > 0;
        const bool draw_shade = shade >= 4 || (shade > 0 && base == 0);
        if (draw_allocated) {
            out.put(options.allocated_color, glyphs.allocated.at(static_cast<std::size_t>(here)));
        } else if (draw_shade) {
            out.put(options.reserved_color, glyphs.reserved);
        } else {
            out.put({}, " ");
        }
    }
}

std::string note_row(const std::vector<PlotNote>& notes, std::uint64_t end, std::size_t columns) {
    std::string row(columns, ' ');
    for (const PlotNote& note : notes) {
        char& cell = row[column_of(note.time_ns, end, columns)];
        // Two marks in one column share a plus; an OOM is never hidden.
        if (cell == ' ' || note.symbol == 'X') {
            cell = note.symbol;
        } else if (cell != 'X') {
            cell = '+';
        }
    }
    return row;
}

}  // namespace

std::vector<std::string> plot_timeline(const std::vector<PlotPoint>& points, std::uint64_t end_ns,
                                       const std::vector<PlotNote>& notes,
                                       const PlotOptions& options) {
    std::uint64_t highest = 0;
    std::uint64_t end = std::max<std::uint64_t>(end_ns, 1);
    for (const PlotPoint& point : points) {
        highest = std::max({highest, point.allocated, point.reserved});
        end = std::max(end, point.time_ns);
    }
    if (highest == 0) {
        return {};
    }
    const Glyphs& glyphs = options.ascii ? ascii_glyphs : unicode_glyphs;
    const int height = std::max(options.height, 2);
    const ByteUnit unit = unit_for(highest);
    const std::string top_label = format_bytes(highest, unit);
    const std::string middle_label = format_bytes(highest / 2, unit);
    const std::size_t label_width = std::max(top_label.size(), middle_label.size());
    const std::size_t width = static_cast<std::size_t>(std::max(options.width, 40));
    const std::size_t area = width - label_width - 2;
    const auto columns = columns_of(points, end, area);

    std::vector<std::string> lines;
    for (int row = 0; row < height; ++row) {
        const bool middle = row == height / 2 && height >= 4;
        std::string label = row == 0 ? top_label : middle ? middle_label : "";
        std::string line = padded(label, label_width) + " ";
        line += label.empty() ? glyphs.axis : glyphs.tick;
        RowWriter out(options);
        draw_row(out, columns, static_cast<double>(highest), row, height, options, glyphs);
        lines.push_back(line + out.take());
    }
    std::string floor = padded(format_bytes(0, unit), label_width) + " " + glyphs.corner;
    for (std::size_t i = 0; i < area; ++i) {
        floor += glyphs.floor;
    }
    lines.push_back(floor);
    const std::string indent(label_width + 2, ' ');
    if (!notes.empty()) {
        std::string row = indent + note_row(notes, end, area);
        trim_right(row);
        lines.push_back(row);
    }
    const std::string left = "0 s";
    const std::string centre = format_duration(end / 2);
    const std::string right = format_duration(end);
    std::string times(area, ' ');
    times.replace(0, left.size(), left);
    if (right.size() <= area) {
        times.replace(area - right.size(), right.size(), right);
    }
    const std::size_t centre_at = area / 2 - std::min(area / 2, centre.size() / 2);
    if (centre_at > left.size() + 1 && centre_at + centre.size() + 1 < area - right.size()) {
        times.replace(centre_at, centre.size(), centre);
    }
    lines.push_back(indent + times);
    return lines;
}

}  // namespace memlab::report
