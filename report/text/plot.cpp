#include "report/text/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "report/text/terminal.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

struct PlotColumn {
    std::uint64_t allocated = 0;
    std::uint64_t active = 0;
    std::uint64_t reserved = 0;
    std::uint64_t device_used = 0;
};

struct Glyphs {
    std::array<const char*, 9> allocated;  ///< eighths of a cell, from empty to full
    const char* active;
    const char* reserved;
    const char* device_used;
    const char* axis;
    const char* tick;
    const char* corner;
    const char* floor;
};

constexpr Glyphs unicode_glyphs = {
    {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, "▒", "░", "┄", "│", "┤", "└", "─"};
constexpr Glyphs ascii_glyphs = {
    {" ", "#", "#", "#", "#", "#", "#", "#", "#"}, ":", ".", "~", "|", "+", "+", "-"};

/// The time axis.
struct TimeRange {
    std::uint64_t from = 0;
    std::uint64_t end = 1;  ///< greater than `from`

    /// The column of `time`, out of `columns`; clamped to the first and last.
    std::size_t column(std::uint64_t time, std::size_t columns) const {
        const std::uint64_t since = time - std::min(time, from);
        const double position = static_cast<double>(since) / static_cast<double>(end - from) *
                                static_cast<double>(columns);
        return position >= static_cast<double>(columns) ? columns - 1
                                                        : static_cast<std::size_t>(position);
    }
};

/// visit(column, point) for each column in which a point's values hold.
template <typename Point, typename Visit>
void for_each_column(const std::vector<Point>& points, const TimeRange& range, std::size_t count,
                     const Visit& visit) {
    for (std::size_t i = 0; i < points.size(); ++i) {
        const std::size_t first = range.column(points[i].time_ns, count);
        std::size_t last = count - 1;
        if (i + 1 < points.size()) {
            last = range.column(points[i + 1].time_ns, count);
            // The value extends into the next point's column only if that point does not begin
            // exactly at the edge of the column.
            const double edge = static_cast<double>(last) / static_cast<double>(count);
            const bool on_edge = static_cast<double>(points[i + 1].time_ns - range.from) <=
                                 edge * static_cast<double>(range.end - range.from);
            if (on_edge && last > first) {
                --last;
            }
        }
        for (std::size_t column = first; column <= last; ++column) {
            visit(column, points[i]);
        }
    }
}

std::vector<PlotColumn> make_columns(const std::vector<PlotPoint>& points, const TimeRange& range,
                                     std::size_t count) {
    std::vector<PlotColumn> columns(count);
    for_each_column(points, range, count, [&](std::size_t at, const PlotPoint& point) {
        PlotColumn& column = columns[at];
        column.allocated = std::max(column.allocated, point.allocated);
        column.active = std::max(column.active, point.active);
        column.reserved = std::max(column.reserved, point.reserved);
        column.device_used = std::max(column.device_used, point.device_used);
    });
    return columns;
}

std::uint64_t sum_of(const PlotStack& stack) {
    return std::accumulate(stack.bytes.begin(), stack.bytes.end(), std::uint64_t{0});
}

/// The point of each column with the highest sum, the first of several; null: none.
std::vector<const PlotStack*> make_stacks(const std::vector<PlotStack>& points,
                                          const TimeRange& range, std::size_t count) {
    std::vector<const PlotStack*> columns(count);
    for_each_column(points, range, count, [&](std::size_t at, const PlotStack& point) {
        if (columns[at] == nullptr || sum_of(point) > sum_of(*columns[at])) {
            columns[at] = &point;
        }
    });
    return columns;
}

/// The layer at `height` bytes above the axis; none: above all of them.
std::optional<std::size_t> layer_at(const PlotStack& stack, double height) {
    double top = 0;
    for (std::size_t i = 0; i < stack.bytes.size(); ++i) {
        top += static_cast<double>(stack.bytes[i]);
        if (height < top) {
            return i;
        }
    }
    return std::nullopt;
}

std::string padded(const std::string& text, std::size_t width) {
    return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

void trim_right(std::string& line) {
    line.erase(line.find_last_not_of(' ') + 1);
}

/// Emits an escape sequence only where the colour changes, not for each cell.
class RowWriter {
  public:
    explicit RowWriter(const PlotOptions& options) : options_(options) {}

    void put(std::string_view color, std::string_view glyph) {
        if (color != current_) {
            reset_color();
            text_ += color;
            current_ = color;
        }
        text_ += glyph;
    }

    std::string take() {
        reset_color();
        trim_right(text_);
        return std::move(text_);
    }

  private:
    void reset_color() {
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
void draw_row(RowWriter& out, const std::vector<PlotColumn>& columns, double top, int row,
              int height, const PlotOptions& options, const Glyphs& glyphs) {
    const int steps = 8;
    const int base = (height - 1 - row) * steps;  // eighths below this row
    const double scale = static_cast<double>(height * steps) / top;
    // Values other than 0 are drawn, however small.
    const auto eighths = [scale](std::uint64_t bytes) {
        return std::max(static_cast<int>(std::lround(static_cast<double>(bytes) * scale)),
                        bytes != 0 ? 1 : 0);
    };
    // Shades have whole cells only: a cell is drawn if it is half full, the lowest one always.
    const auto covers = [base, steps](int height_in_eighths) {
        const int here = std::clamp(height_in_eighths - base, 0, steps);
        return here >= 4 || (here > 0 && base == 0);
    };
    for (const PlotColumn& column : columns) {
        const int allocated = eighths(column.allocated);
        const int here = std::clamp(allocated - base, 0, steps);
        if (options.ascii ? covers(allocated) : here > 0) {
            out.put(options.allocated_color, glyphs.allocated.at(static_cast<std::size_t>(here)));
        } else if (column.active > column.allocated && covers(eighths(column.active))) {
            out.put(options.reserved_color, glyphs.active);
        } else if (covers(eighths(column.reserved))) {
            out.put(options.reserved_color, glyphs.reserved);
        } else if (const int line = eighths(column.device_used);
                   line > 0 && (line - 1) / steps == height - 1 - row) {
            out.put(options.reserved_color, glyphs.device_used);
        } else {
            out.put({}, " ");
        }
    }
}

void draw_stack_row(RowWriter& out, const std::vector<const PlotStack*>& columns, double top,
                    int row, int height, const std::vector<PlotLayer>& layers) {
    const double middle = (height - row - 0.5) / height * top;
    for (const PlotStack* const column : columns) {
        std::optional<std::size_t> layer =
            column != nullptr ? layer_at(*column, middle) : std::nullopt;
        if (!layer && column != nullptr && row == height - 1 && sum_of(*column) != 0) {
            layer = static_cast<std::size_t>(
                std::max_element(column->bytes.begin(), column->bytes.end()) -
                column->bytes.begin());
        }
        if (layer) {
            out.put(layers[*layer].color, layers[*layer].glyph);
        } else {
            out.put({}, " ");
        }
    }
}

std::string note_row(const std::vector<PlotNote>& notes, const TimeRange& range,
                     std::size_t columns) {
    std::string row(columns, ' ');
    for (const PlotNote& note : notes) {
        char& cell = row[range.column(note.time_ns, columns)];
        // Several marks in one column share one sign; an OOM is never hidden.
        if (cell == ' ' || note.symbol == 'X') {
            cell = note.symbol;
        } else if (cell != 'X') {
            cell = PlotNote().symbol;
        }
    }
    // Digits side by side would read as one number.
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    for (std::size_t begin = 0; begin < columns; ++begin) {
        std::size_t end = begin;
        while (end < columns && is_digit(row[end])) {
            ++end;
        }
        if (end - begin > 1) {
            std::fill(row.begin() + static_cast<std::ptrdiff_t>(begin),
                      row.begin() + static_cast<std::ptrdiff_t>(end), PlotNote().symbol);
        }
        begin = std::max(begin, end);
    }
    return row;
}

/// A lane: "├─step 1──┤├─step 2──┤".
struct SpanRow {
    std::string bars;
    std::string names;  ///< of those that no bar has room for
};

/// The rows of all lanes.
std::vector<SpanRow> span_rows(const std::vector<PlotSpan>& spans, const TimeRange& range,
                               std::size_t columns, bool ascii) {
    struct Bar {
        std::size_t first = 0;
        std::size_t last = 0;
        const PlotSpan* span = nullptr;  ///< null: several spans merged
    };
    std::size_t lanes = 0;
    for (const PlotSpan& span : spans) {
        lanes = std::max(lanes, span.lane + 1);
    }
    std::vector<std::vector<Bar>> bars(lanes);
    std::vector<std::vector<std::string>> names(lanes);  // each once, in the order of time
    std::vector<std::set<std::string>> known(lanes);
    for (const PlotSpan& span : spans) {
        if (span.end_ns < range.from || span.begin_ns > range.end) {
            continue;
        }
        if (known[span.lane].insert(span.name).second) {
            names[span.lane].push_back(span.name);
        }
        const Bar bar{range.column(span.begin_ns, columns), range.column(span.end_ns, columns),
                      &span};
        std::vector<Bar>& lane = bars[span.lane];
        const auto is_long = [](const Bar& of) { return of.last - of.first >= 2; };
        const bool touches = !lane.empty() && bar.first <= lane.back().last;
        // Adjacent short bars are merged, too.
        const bool continues = !lane.empty() && bar.first == lane.back().last + 1 &&
                               lane.back().span == nullptr && !is_long(bar);
        if (touches || continues) {
            if (bar.first == lane.back().last && lane.back().span != nullptr && is_long(bar) &&
                is_long(lane.back())) {
                --lane.back().last;  // both end and begin in this column
                lane.push_back(bar);
            } else {
                lane.back().last = std::max(lane.back().last, bar.last);
                lane.back().span = nullptr;
            }
        } else {
            lane.push_back(bar);
        }
    }
    const char* const line = ascii ? "-" : "─";
    std::vector<SpanRow> rows;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        if (bars[lane].empty()) {
            continue;
        }
        std::string row;
        std::size_t at = 0;
        for (const Bar& bar : bars[lane]) {
            row.append(bar.first - at, ' ');
            at = bar.last + 1;
            const std::size_t inner = bar.last - bar.first < 2 ? 0 : bar.last - bar.first - 1;
            const std::string name =
                bar.span == nullptr || inner < 3 ? "" : shorten_end(bar.span->name, inner, ascii);
            if (!name.empty()) {
                known[lane].erase(bar.span->name);
            }
            row += bar.first == bar.last ? (ascii ? "|" : "│") : (ascii ? "[" : "├");
            std::string filling = name;
            for (std::size_t i = display_width(name); i < inner; ++i) {
                filling += bar.span == nullptr ? (ascii ? "=" : "┼") : line;
            }
            row += filling;
            row += bar.first == bar.last ? "" : (ascii ? "]" : "┤");
        }
        std::string without_room;
        for (const std::string& name : names[lane]) {
            if (known[lane].contains(name)) {
                without_room += (without_room.empty() ? "" : ", ") + name;
            }
        }
        rows.push_back({std::move(row), std::move(without_room)});
    }
    return rows;
}

/// The area with its axes, notes, spans and times. draw(columns, rows) gives what draws a row of
/// it: (out, row).
template <typename Draw>
std::vector<std::string> draw_frame(std::uint64_t max_bytes, const TimeRange& range,
                                    const std::vector<PlotNote>& notes, const PlotOptions& options,
                                    const std::vector<PlotSpan>& spans, const Draw& draw) {
    if (max_bytes == 0) {
        return {};
    }
    const Glyphs& glyphs = options.ascii ? ascii_glyphs : unicode_glyphs;
    const int height = std::max(options.height, 2);
    const ByteUnit unit = unit_for(max_bytes);
    const std::string top_label = format_bytes(max_bytes, unit);
    const std::string middle_label = format_bytes(max_bytes / 2, unit);
    const std::size_t label_width = std::max(top_label.size(), middle_label.size());
    const std::size_t width = static_cast<std::size_t>(std::max(options.width, 40));
    const std::size_t area = width - label_width - 2;
    const auto draw_row = draw(area, height);

    std::vector<std::string> lines;
    for (int row = 0; row < height; ++row) {
        const bool middle = row == height / 2 && height >= 4;
        std::string label = row == 0 ? top_label : middle ? middle_label : "";
        std::string line = padded(label, label_width) + " ";
        line += label.empty() ? glyphs.axis : glyphs.tick;
        RowWriter out(options);
        draw_row(out, row);
        lines.push_back(line + out.take());
    }
    std::string floor = padded(format_bytes(0, unit), label_width) + " " + glyphs.corner;
    for (std::size_t i = 0; i < area; ++i) {
        floor += glyphs.floor;
    }
    lines.push_back(floor);
    const std::string indent(label_width + 2, ' ');
    if (!notes.empty()) {
        std::string row = indent + note_row(notes, range, area);
        trim_right(row);
        lines.push_back(row);
    }
    for (const SpanRow& row : span_rows(spans, range, area, options.ascii)) {
        const std::string names = shorten_end(row.names, label_width, options.ascii);
        lines.push_back(names + indent.substr(display_width(names)) + row.bars);
    }
    // A range of a microsecond, an hour after the start, is labelled "1 h 00 min ... +1.0 us".
    const std::uint64_t length = range.end - range.from;
    const std::string sign = range.from == 0 ? "" : "+";
    const std::string left = range.from == 0 ? "0 s" : format_duration(range.from);
    const std::string centre = sign + format_duration(length / 2);
    const std::string right = sign + format_duration(length);
    std::string times(area, ' ');
    times.replace(0, left.size(), left);
    if (right.size() <= area) {
        times.replace(area - right.size(), right.size(), right);
    }
    const std::size_t centre_at = area / 2 - std::min(area / 2, centre.size() / 2);
    if (centre_at > left.size() + 1 && centre_at + centre.size() + 1 + right.size() < area) {
        times.replace(centre_at, centre.size(), centre);
    }
    lines.push_back(indent + times);
    return lines;
}

}  // namespace

std::vector<std::string> plot_timeline(const std::vector<PlotPoint>& points, std::uint64_t end_ns,
                                       const std::vector<PlotNote>& notes,
                                       const PlotOptions& options,
                                       const std::vector<PlotSpan>& spans) {
    std::uint64_t max_bytes = 0;
    TimeRange range{options.from_ns, std::max(end_ns, options.from_ns + 1)};
    for (const PlotPoint& point : points) {
        max_bytes =
            std::max({max_bytes, point.allocated, point.active, point.reserved, point.device_used});
        range.end = std::max(range.end, point.time_ns);
    }
    return draw_frame(max_bytes, range, notes, options, spans, [&](std::size_t area, int height) {
        return [&, height, columns = make_columns(points, range, area)](RowWriter& out, int row) {
            draw_row(out, columns, static_cast<double>(max_bytes), row, height, options,
                     options.ascii ? ascii_glyphs : unicode_glyphs);
        };
    });
}

std::vector<std::string> plot_stacks(const std::vector<PlotStack>& points,
                                     const std::vector<PlotLayer>& layers, std::uint64_t end_ns,
                                     const std::vector<PlotNote>& notes, const PlotOptions& options,
                                     const std::vector<PlotSpan>& spans) {
    std::uint64_t max_bytes = 0;
    TimeRange range{options.from_ns, std::max(end_ns, options.from_ns + 1)};
    for (const PlotStack& point : points) {
        max_bytes = std::max(max_bytes, sum_of(point));
        range.end = std::max(range.end, point.time_ns);
    }
    return draw_frame(max_bytes, range, notes, options, spans, [&](std::size_t area, int height) {
        return [&, height, columns = make_stacks(points, range, area)](RowWriter& out, int row) {
            draw_stack_row(out, columns, static_cast<double>(max_bytes), row, height, layers);
        };
    });
}

}  // namespace memlab::report
