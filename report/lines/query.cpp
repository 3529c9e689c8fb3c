#include "report/lines/query.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "trace/aggregate/memory_stat_keys.hpp"

namespace memlab::report {

namespace {

using trace::CurveName;
using Sum = LineColumn::Sum;

constexpr std::array<std::pair<std::string_view, CurveName>, 4> curve_columns = {
    {{"active", CurveName::active},
     {"reserved", CurveName::reserved},
     {"allocated", CurveName::allocated},
     {"requested", CurveName::requested}}};
constexpr std::array<std::pair<std::string_view, Sum>, 4> sum_columns = {
    {{"bytes", Sum::bytes}, {"count", Sum::count}, {"live", Sum::live}, {"at_peak", Sum::at_peak}}};

/// "active_bytes.all.current" for "active_bytes.all.peak", which is its maximum.
std::string followed_key(const std::string& name) {
    constexpr std::string_view peak = ".peak";
    return name.ends_with(peak) ? name.substr(0, name.size() - peak.size()) + ".current" : name;
}

std::optional<LineColumn> column_of(const std::string& name) {
    LineColumn column;
    column.name = name;
    for (const auto& [word, curve] : curve_columns) {
        if (name == word) {
            column.curve = curve;
            column.of_moments = true;
            return column;
        }
    }
    for (const auto& [word, sum] : sum_columns) {
        if (name == word) {
            column.source = LineColumn::Source::sum;
            column.sum = sum;
            column.bytes = sum != Sum::count;
            column.of_whole_run = sum == Sum::live || sum == Sum::at_peak;
            return column;
        }
    }
    static const trace::MemoryStats any;
    if (find_statistic(any, name) == nullptr) {
        return std::nullopt;
    }
    column.source = LineColumn::Source::statistic;
    column.statistic = followed_key(name);
    column.of_moments = true;
    column.highest = name.ends_with(".peak");
    column.bytes = name.find("bytes") != std::string::npos;
    return column;
}

}  // namespace

const std::uint64_t* find_statistic(const trace::MemoryStats& stats, const std::string& key) {
    const std::uint64_t* found = nullptr;
    trace::visit_memory_stats(stats, [&](std::string_view name, std::string_view pool,
                                         std::string_view figure, const std::uint64_t& value) {
        if (key.size() == name.size() + pool.size() + figure.size() && key.starts_with(name) &&
            key.ends_with(figure) && key.compare(name.size(), pool.size(), pool) == 0) {
            found = &value;
        }
    });
    return found;
}

std::vector<LineColumn> select_columns(const LineQuery& query) {
    std::vector<std::string> names = query.columns;
    if (names.empty()) {
        // Of the line's own memory, and the same of a log and of its report.
        names = query.every != 0 ? std::vector<std::string>{"bytes", "count"}
                                 : std::vector<std::string>{"at_peak", "bytes", "live"};
    }
    std::vector<LineColumn> columns;
    columns.reserve(names.size());
    for (const std::string& name : names) {
        columns.push_back(*column_of(name));
    }
    return columns;
}

std::string check_column(const std::string& name) {
    if (column_of(name)) {
        return {};
    }
    return "takes active, reserved, allocated, requested, bytes, count, live, at_peak or a key of "
           "torch.cuda.memory_stats like active_bytes.all.peak, not " +
           name;
}

}  // namespace memlab::report
