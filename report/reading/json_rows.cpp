// The rows of a timeline from JSON: lists of numbers, which columns name.
#include <array>
#include <string>

#include "report/reading/json_fields.hpp"

namespace memlab::report {

namespace {

/// The positions of a curve's columns.
std::array<std::size_t, model::row_figures.size()> find_columns(const Node& columns,
                                                                const char* curve) {
    std::array<std::size_t, model::row_figures.size()> positions{};
    for (std::size_t k = 0; k < model::row_figures.size(); ++k) {
        const std::string wanted = std::string(curve) + model::row_figures.at(k);
        std::size_t position = columns.size();
        for (std::size_t i = 0; i < columns.size(); ++i) {
            if (columns.at(i).text() == wanted) {
                position = i;
            }
        }
        if (position == columns.size()) {
            columns.fail("has no \"" + wanted + "\"");
        }
        positions.at(k) = position;
    }
    return positions;
}

}  // namespace

void JsonFields::rows(model::FieldName columns_name, model::FieldName rows_name,
                      model::Timeline& timeline) {
    const Node columns = node_.member(columns_name);
    if (columns.size() == 0 || columns.at(0).text() != "bucket") {
        columns.fail("does not begin with \"bucket\"");
    }
    std::array<std::array<std::size_t, model::row_figures.size()>, model::curve_count> positions{};
    for (std::size_t c = 0; c < model::curve_count; ++c) {
        positions.at(c) = find_columns(columns, model::curve_names.at(c));
    }
    node_.member(rows_name).each([&](const Node& cells) {
        if (cells.size() != columns.size()) {
            cells.fail("does not have one number for each column");
        }
        model::TimelineRow row;
        std::uint64_t offset = 0;
        if (__builtin_mul_overflow(cells.at(0).number(), timeline.bucket_ns, &offset) ||
            __builtin_add_overflow(timeline.start_ns, offset, &row.begin_ns)) {
            cells.fail("does not fit into 64 bits of nanoseconds");
        }
        if (!timeline.rows.empty() && row.begin_ns <= timeline.rows.back().begin_ns) {
            cells.fail("is not in order of time");
        }
        for (std::size_t c = 0; c < model::curve_count; ++c) {
            const auto& [min, max, last] = positions.at(c);
            if (model::may_be_unknown(c) && cells.at(max).is_null()) {
                continue;
            }
            row.curves.at(c) = model::TimelineRow::Values{
                cells.at(min).number(), cells.at(max).number(), cells.at(last).number()};
        }
        timeline.rows.push_back(row);
    });
}

}  // namespace memlab::report
