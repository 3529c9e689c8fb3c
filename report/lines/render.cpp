#include "report/lines/render.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "report/lines/source_text.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/names.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

class LinesText {
  public:
    LinesText(const LineTables& tables, const LineTextOptions& options)
        : tables_(tables), options_(options), page_(options.style) {}

    std::string write() {
        for (const LineTables::Group& group : tables_.groups) {
            if (group.first_step != 0) {
                page_.heading(group.first_step == group.last_step
                                  ? "Step " + std::to_string(group.first_step)
                                  : "Steps " + std::to_string(group.first_step) + " to " +
                                        std::to_string(group.last_step));
            }
            for (const LineTable& table : group.tables) {
                write(table);
            }
        }
        for (const std::string& note : tables_.notes) {
            page_.line("");
            page_.paragraph("", note);
        }
        return page_.take();
    }

  private:
    static bool is_curve(const std::string& name) {
        return name == "active" || name == "reserved" || name == "allocated" || name == "requested";
    }
    std::string shown_path(const std::string& file) const {
        return page_.clean(shown_file(file, options_.working_directory));
    }

    std::string title_of(const LineTable& table) const {
        const std::string whole = page_.clean(without_anonymous(table.function));
        const std::size_t room = page_.width() - std::min<std::size_t>(page_.width(), 5);
        return display_width(whole) + display_width(shown_path(table.file)) <= room
                   ? whole
                   : page_.clean(collapse_templates(whole, page_.style().ascii));
    }

    void write(const LineTable& table) {
        page_.heading("## " + title_of(table), shown_path(table.file));
        page_.line("");
        const SourceText source = read_source(find_source(table.file, options_.sources));
        const Table<Line> columns = make_columns(!source.lines.empty());
        columns.head();
        const int first = table.rows.begin()->first;
        const int last = table.rows.rbegin()->first;
        if (source.lines.empty()) {
            for (const auto& [number, row] : table.rows) {
                write(columns, &row, number, "");
            }
            note("Source not found (" + shown_path(table.file) + ": " + source.problem +
                 "); --sources DIR names a folder to look in.");
            return;
        }
        const LineRange range = table.python && table.first_line != 0
                                    ? python_function(source, table.first_line, last)
                                    : surroundings(source, first, last);
        // Removes the indentation that all lines have.
        std::size_t indent = std::string::npos;
        for (int number = range.first; number <= range.last; ++number) {
            indent = std::min(
                indent, source.lines[static_cast<std::size_t>(number) - 1].find_first_not_of(' '));
        }
        auto row = table.rows.begin();
        for (int number = std::min(first, range.first); number <= std::max(last, range.last);
             ++number) {
            if (const int skipped = far_lines(table, range, number); skipped > 0) {
                write_gap(columns, skipped);
                number += skipped - 1;
                continue;
            }
            const bool known = number >= 1 && number <= static_cast<int>(source.lines.size());
            std::string text =
                known ? source.lines[static_cast<std::size_t>(number) - 1] : std::string();
            text.erase(0, std::min(indent, text.find_first_not_of(' ')));
            const bool has_row = row != table.rows.end() && row->first == number;
            if (has_row || (known && number >= range.first && number <= range.last)) {
                write(columns, has_row ? &row->second : nullptr, number, text);
            }
            row = has_row ? std::next(row) : row;
        }
        if (source.modified_ns > static_cast<std::int64_t>(options_.recorded_wall_ns)) {
            note("The source is newer than the recording: lines may have moved.");
        }
    }

    /// How many lines from `number` on are too far from those that allocated to be shown; 0 where
    /// leaving them out would hardly save any. The function's first line is always shown.
    int far_lines(const LineTable& table, const LineRange& range, int number) const {
        if (number <= range.first || number > range.last) {
            return 0;
        }
        const auto next = table.rows.lower_bound(number);
        const std::int64_t context = options_.context;
        if (next != table.rows.begin() && number <= std::prev(next)->first + context) {
            return 0;
        }
        const std::int64_t end =
            next == table.rows.end() ? std::int64_t{range.last} + 1 : next->first - context;
        constexpr std::int64_t worth_it = 4;
        return end - number < worth_it ? 0 : static_cast<int>(end - number);
    }

    /// A line of the source, or of some that are left out.
    struct Line {
        const LineTable::Row* row;
        std::string number;
    };

    /// The heading of "active_bytes.all.peak" has a line for each of its words.
    Table<Line> make_columns(bool with_code) {
        Table<Line> table(page_, 0);
        for (std::size_t i = 0; i < tables_.columns.size(); ++i) {
            const LineTables::Column& column = tables_.columns[i];
            std::string heading = column.name;
            std::replace(heading.begin(), heading.end(), '.', '\n');
            if (column.bytes && is_curve(column.name)) {
                heading.insert(0, "program's\n");
                heading += "\npeak";
            }
            std::size_t width = column.bytes ? 11 : 7;
            std::istringstream words(heading);
            for (std::string word; std::getline(words, word);) {
                width = std::max(width, word.size());
            }
            const auto value = [i](const Line& line) {
                return line.row == nullptr ? std::nullopt : line.row->values[i];
            };
            column.bytes ? table.bytes(heading, width + 1, value)
                         : table.count(heading, width + 1, value);
        }
        table.right("line", 6, &Line::number).last(with_code ? "code" : "");
        return table;
    }

    void write_gap(const Table<Line>& columns, int lines) {
        page_.line(page_.dim(columns.line(
            {nullptr, page_.style().ascii ? "..." : "…"},
            format_plural(static_cast<std::uint64_t>(lines), "line") + " without allocations")));
    }

    void write(const Table<Line>& columns, const LineTable::Row* row, int number,
               const std::string& code) {
        std::string text =
            shorten_end(page_.clean(code), columns.last_width(), page_.style().ascii);
        if (row != nullptr && row->ooms != 0) {
            text += (code.empty() ? "" : "  ") +
                    page_.red("<- out of memory" +
                              (row->ooms == 1 ? std::string()
                                              : " " + format_count(row->ooms) + " times"));
        }
        const std::string line = columns.line({row, std::to_string(number)}, text);
        page_.line(row == nullptr ? page_.dim(line) : line);
    }

    void note(const std::string& text) {
        page_.line("");
        page_.line(page_.dim(wrap(text, page_.width(), "")));
    }

    const LineTables& tables_;
    const LineTextOptions& options_;
    Page page_;
};

ordered_json row_json(const LineTables& tables, int number, const LineTable::Row& row) {
    ordered_json out;
    out["line"] = number;
    for (std::size_t i = 0; i < tables.columns.size(); ++i) {
        out[tables.columns[i].name] = row.values[i] ? ordered_json(*row.values[i]) : ordered_json();
    }
    out["ooms"] = row.ooms;
    return out;
}

}  // namespace

std::string render_lines(const LineTables& tables, const LineTextOptions& options) {
    return LinesText(tables, options).write();
}

std::string lines_json(const LineTables& tables) {
    ordered_json out;
    out["device"] = tables.device;
    out["columns"] = ordered_json::array();
    for (const LineTables::Column& column : tables.columns) {
        out["columns"].push_back(column.name);
    }
    out["groups"] = ordered_json::array();
    for (const LineTables::Group& group : tables.groups) {
        ordered_json& shown = out["groups"].emplace_back();
        const auto step = [](std::uint64_t number) {
            return number == 0 ? ordered_json() : ordered_json(number);
        };
        shown["first_step"] = step(group.first_step);
        shown["last_step"] = step(group.last_step);
        shown["functions"] = ordered_json::array();
        for (const LineTable& table : group.tables) {
            ordered_json& function = shown["functions"].emplace_back();
            function["function"] = table.function;
            function["file"] = table.file;
            function["first_line"] =
                table.first_line == 0 ? ordered_json() : ordered_json(table.first_line);
            function["lines"] = ordered_json::array();
            for (const auto& [number, row] : table.rows) {
                function["lines"].push_back(row_json(tables, number, row));
            }
        }
    }
    out["notes"] = tables.notes;
    return json_text(out);
}

}  // namespace memlab::report
