// Tables of a page. A table is a list of columns, each with its heading, its width and how a cell
// of it is made from a row, so that headings and rows cannot drift apart and a column's width is
// said once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/text/page.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

/// A column. At the right of its width, with what is left of it before the text; or at the left,
/// behind two blanks unless it is the first of the line.
struct Column {
    enum class Align { left, right };

    /// As wide as the heading or the widest cell that fit() sees.
    static constexpr std::size_t fitted = SIZE_MAX;
    /// The last column only: as long as its text is.
    static constexpr std::size_t rest = 0;

    std::string heading;  ///< one line or several
    std::size_t width = fitted;
    Align align = Align::right;
    std::function<std::string(const void* row)> cell;
    std::function<std::string_view(const void* row)> color = {};
    int spare = 0;  ///< fit() leaves out the highest first where the page is too narrow; 0: never
};

/// The columns of a table, whatever its rows are. Texts of a recording must have passed
/// Page::clean(). Thread-safety: none.
class ColumnList {
  public:
    /// `page` must outlive this.
    explicit ColumnList(Page& page, std::size_t indent) : page_(page), indent_(indent) {}

    /// The line of headings, dim.
    void head() const;
    /// Where the last column begins, in columns of the page.
    std::size_t last_column() const;
    /// What of a line is left for the last column, but at least 20.
    std::size_t last_width() const { return page_.remaining_width(last_column()); }
    std::size_t width_of(std::size_t column) const { return columns_.at(column).width; }
    /// Widens a column as long as the page has `room` columns for the last one.
    void widen(std::size_t column, std::size_t room);
    /// Whether a column with that heading is shown.
    bool has(const std::string& heading) const;
    /// A row of which the last column alone has a text.
    void only_last(const std::string& text) const;

  protected:
    void add(Column column) { columns_.push_back(std::move(column)); }
    void make_colored(std::function<std::string_view(const void* row)> of) {
        columns_.back().color = std::move(of);
    }
    /// The last column shows `last`, if given, instead of its cell.
    std::string line_of(const void* row, const std::optional<std::string>& last) const;
    static std::string trimmed(std::string line);
    /// Decides the widths that are `fitted`, leaves out columns, then narrows the first one to at
    /// least `min_first`, and cuts its cells.
    void fit_to(const std::vector<const void*>& rows, std::size_t min_first);

    Page& page_;

  private:
    std::string line_of_cells(const std::vector<std::string>& cells) const;
    std::string cell_of(std::size_t column, const void* row) const;
    std::size_t gap(std::size_t column) const;
    std::size_t end_of(std::size_t count) const;

    std::size_t indent_;
    std::vector<Column> columns_;
    bool is_first_cut_ = false;
};

/// A table whose rows are made of `Row`s. `get` is a member of Row or a function of one; where it
/// gives an empty std::optional, the cell is empty.
template <typename Row>
class Table : public ColumnList {
  public:
    using Cell = std::function<std::string(const Row&)>;

    explicit Table(Page& page, std::size_t indent = 2) : ColumnList(page, indent) {}

    Table& right(const std::string& heading, std::size_t width, Cell cell, int spare = 0) {
        return column(heading, width, Column::Align::right, std::move(cell), spare);
    }
    Table& left(const std::string& heading, std::size_t width, Cell cell) {
        return column(heading, width, Column::Align::left, std::move(cell), 0);
    }
    /// The last one, as long as it is. Without a cell, row() is given its text.
    Table& last(
        const std::string& heading, Cell cell = [](const Row&) { return std::string(); }) {
        return left(heading, Column::rest, std::move(cell));
    }

    template <typename Get>
    Table& bytes(const std::string& heading, std::size_t width, Get get) {
        return figure(heading, width, get, [](std::uint64_t value) { return format_bytes(value); });
    }
    template <typename Get>
    Table& bytes(const std::string& heading, Get get) {
        return bytes(heading, 12, get);
    }
    template <typename Get>
    Table& count(const std::string& heading, std::size_t width, Get get) {
        return figure(heading, width, get, format_count);
    }
    template <typename Get>
    Table& count(const std::string& heading, Get get) {
        return count(heading, 8, get);
    }
    /// Not grouped by thousands: a process, a rank, a row's number.
    template <typename Get>
    Table& number(const std::string& heading, std::size_t width, Get get) {
        return figure(heading, width, get,
                      [](std::uint64_t value) { return std::to_string(value); });
    }
    template <typename Get>
    Table& duration(const std::string& heading, Get get, std::size_t width = 12) {
        return figure(heading, width, get, format_duration);
    }
    /// What `get` gives, in percent of `whole`.
    template <typename Get>
    Table& share(Get get, std::uint64_t whole) {
        return figure("share", 8, get,
                      [whole](std::uint64_t part) { return format_percent(part, whole); });
    }
    /// The column before is in the colour of a row, if any: one of Style's.
    Table& color(std::function<std::string_view(const Row&)> of) {
        make_colored([of](const void* row) { return of(*static_cast<const Row*>(row)); });
        return *this;
    }
    /// The column before is bold, in the rows that `which` takes.
    Table& bold(std::function<bool(const Row&)> which = [](const Row&) { return true; }) {
        return color([which, bold = page_.style().bold()](const Row& row) {
            return which(row) ? bold : std::string_view();
        });
    }

    void row(const Row& row) const { page_.line(line(row)); }
    /// With `last` in the last column.
    void row(const Row& row, const std::string& last) const { page_.line(line(row, last)); }
    /// The first `top` of a list; returns how many are left.
    template <typename List>
    std::size_t rows(const List& list, std::size_t top) const {
        std::size_t shown = 0;
        for (const Row& each : list) {
            if (shown == top) {
                break;
            }
            ++shown;
            row(each);
        }
        return list.size() - shown;
    }
    /// The text of a row, which row() adds to the page; no blanks at its end.
    std::string line(const Row& row) const { return trimmed(line_of(&row, std::nullopt)); }
    std::string line(const Row& row, const std::string& last) const {
        return trimmed(line_of(&row, last));
    }
    /// What of it is before the text of the last column.
    std::string begin(const Row& row) const { return line_of(&row, ""); }

    /// Call before head() if a width is Column::fitted.
    void fit(const std::vector<Row>& rows, std::size_t min_first = SIZE_MAX) {
        std::vector<const void*> all;
        all.reserve(rows.size());
        for (const Row& row : rows) {
            all.push_back(&row);
        }
        fit_to(all, min_first);
    }

  private:
    template <typename Get, typename Format>
    Table& figure(const std::string& heading, std::size_t width, Get get, Format format) {
        return right(heading, width, [get, format](const Row& row) {
            const auto value = std::invoke(get, row);
            if constexpr (requires { value.has_value(); }) {
                return value ? format(*value) : std::string();
            } else {
                return format(value);
            }
        });
    }

    Table& column(const std::string& heading, std::size_t width, Column::Align align, Cell cell,
                  int spare) {
        add({heading,
             width,
             align,
             [cell = std::move(cell)](const void* row) {
                 return cell(*static_cast<const Row*>(row));
             },
             {},
             spare});
        return *this;
    }
};

}  // namespace memlab::report
