#include "report/text/table.hpp"

#include <algorithm>

#include "report/text/terminal.hpp"

namespace memlab::report {

namespace {

constexpr std::size_t between = 2;  // blanks before a text at the left, and in a fitted width

/// Longer text stays as it is.
std::string padded(const std::string& text, const Column& column) {
    const std::size_t have = display_width(text);
    const std::string blanks(have < column.width ? column.width - have : 0, ' ');
    return column.align == Column::Align::left ? text + blanks : blanks + text;
}

}  // namespace

void ColumnList::head() const {
    std::vector<std::string> left;
    for (const Column& column : columns_) {
        left.push_back(column.heading);
    }
    do {
        std::vector<std::string> line;
        for (std::string& heading : left) {
            const std::size_t end = std::min(heading.find('\n'), heading.size());
            line.push_back(heading.substr(0, end));
            heading.erase(0, end + 1);
        }
        page_.line(page_.dim(trimmed(line_of_cells(line))));
    } while (std::any_of(left.begin(), left.end(), [](const auto& each) { return !each.empty(); }));
}

std::size_t ColumnList::last_column() const {
    return end_of(columns_.size() - 1) + gap(columns_.size() - 1);
}

void ColumnList::widen(std::size_t column, std::size_t room) {
    const std::size_t needed = last_column() + room;
    columns_.at(column).width += page_.width() - std::min(page_.width(), needed);
}

bool ColumnList::has(const std::string& heading) const {
    return std::any_of(columns_.begin(), columns_.end(),
                       [&](const Column& column) { return column.heading == heading; });
}

void ColumnList::only_last(const std::string& text) const {
    page_.line(std::string(last_column(), ' ') + text);
}

std::string ColumnList::line_of(const void* row, const std::optional<std::string>& last) const {
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        cells.push_back(last && i + 1 == columns_.size() ? *last : cell_of(i, row));
    }
    return line_of_cells(cells);
}

void ColumnList::fit_to(const std::vector<const void*>& rows, std::size_t min_first) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        Column& column = columns_[i];
        if (column.width != Column::fitted) {
            continue;
        }
        column.width = display_width(column.heading);
        for (const void* row : rows) {
            column.width = std::max(column.width, display_width(column.cell(row)));
        }
        column.width += column.align == Column::Align::right ? between : 0;
    }
    int spare = 0;
    for (const Column& column : columns_) {
        spare = std::max(spare, column.spare);
    }
    for (; spare > 0 && end_of(columns_.size()) > page_.style().line_columns(); --spare) {
        std::erase_if(columns_, [spare](const Column& each) { return each.spare == spare; });
    }
    std::size_t& first = columns_.front().width;
    if (end_of(columns_.size()) > page_.width() && first > min_first) {
        is_first_cut_ = true;
        first -= std::min(end_of(columns_.size()) - page_.width(), first - min_first);
    }
}

std::string ColumnList::line_of_cells(const std::vector<std::string>& cells) const {
    std::string line(indent_, ' ');
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        line += std::string(gap(i), ' ') + padded(cells[i], columns_[i]);
    }
    return line;
}

std::string ColumnList::trimmed(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

std::string ColumnList::cell_of(std::size_t column, const void* row) const {
    const Column& made = columns_[column];
    std::string text = made.cell(row);
    if (column == 0 && is_first_cut_) {
        text = shorten_end(text, made.width, page_.style().ascii);
    }
    const std::string_view color = made.color ? made.color(row) : std::string_view();
    return color.empty() ? text : page_.paint(color, text);
}

std::size_t ColumnList::gap(std::size_t column) const {
    return column != 0 && columns_[column].align == Column::Align::left ? between : 0;
}

std::size_t ColumnList::end_of(std::size_t count) const {
    std::size_t end = indent_;
    for (std::size_t i = 0; i < count; ++i) {
        end += gap(i) + columns_[i].width;
    }
    return end;
}

}  // namespace memlab::report
