#include "tools/top/rows.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <tuple>

#include "report/text/names.hpp"
#include "tools/live/holders.hpp"

namespace memlab::tools {
namespace {

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

std::string trouble_of(const ProcessSample& process) {
    const ProcessFacts& facts = process.facts;
    const bool open_only =
        !process.uses.empty() && std::all_of(process.uses.begin(), process.uses.end(),
                                             [](const GpuUse& use) { return use.open_only; });
    return !facts.visible                             ? "not visible"
           : facts.zombie                             ? "zombie"
           : facts.state == 'T' || facts.state == 't' ? "stopped"
           : facts.parent_gone && facts.worker        ? "parent gone"
           : facts.parent_gone && facts.leader_gone   ? "left behind"
           : open_only                                ? "GPU open"
           : process.memlab && !process.status        ? "no answer"
                                                      : "";
}

/// "python3 train.py" of "/usr/bin/python3 train.py": the program's folder takes the room of what
/// tells programs apart.
std::string without_folder(const std::string& command) {
    const std::size_t end = std::min(command.find(' '), command.size());
    return command.starts_with('/')
               ? report::base_name(command.substr(0, end)) + command.substr(end)
               : command;
}

Row row_of(const ProcessSample& process, const History& history, bool arguments) {
    Row row;
    row.pid = process.pid();
    row.user = process.facts.user;
    std::vector<unsigned> gpus;
    bool used_known = false;
    std::uint64_t used = 0;
    for (const GpuUse& use : process.uses) {
        gpus.push_back(history.latest().gpus.at(use.gpu).gpu.index);
        used_known |= use.used.has_value();
        used += use.used.value_or(0);
    }
    std::sort(gpus.begin(), gpus.end());
    row.gpus = ranges_of(gpus);
    if (used_known) {
        row.used = used;
    }
    row.memlab = process.memlab;
    if (process.status) {
        row.allocated = process.allocated();
        row.reserved = process.reserved();
        row.tensors = process.tensors();
        row.rank = process.status->rank.value_or("");
        row.holds = process.status->hold_on_oom.waiting != 0;
    }
    row.growth = history.growth(process);
    for (const HistoryPoint& point : history.points(process)) {
        row.curve.push_back(point.level());
    }
    row.command = shown_command(process, arguments);
    row.shown = without_folder(row.command);
    row.trouble = row.holds ? "holds at OOM" : trouble_of(process);
    return row;
}

bool passes(const Row& row, const ProcessSample& process, const std::string& filter) {
    if (filter.empty()) {
        return true;
    }
    const std::string text = lower(row.command + " " + row.user + " " + std::to_string(row.pid) +
                                   " " + process.facts.container + " " + row.trouble +
                                   (row.memlab ? " memlab" : "") + " gpu" + row.gpus);
    return text.find(lower(filter)) != std::string::npos;
}

/// The larger, the earlier; what is not known comes last.
double weight_of(const Row& row, SortKey key) {
    const auto number = [](const auto& value) {
        return value ? static_cast<double>(*value) : -1e300;
    };
    switch (key) {
        case SortKey::used:
            return number(row.used ? row.used : row.reserved);
        case SortKey::allocated:
            return number(row.allocated);
        case SortKey::reserved:
            return number(row.reserved);
        case SortKey::tensors:
            return number(row.tensors);
        case SortKey::per_minute:
            return number(row.growth.per_minute);
        case SortKey::per_step:
            return number(row.growth.per_step);
        case SortKey::pid:
            return -static_cast<double>(row.pid);
        case SortKey::command:
            break;
    }
    return 0;
}

}  // namespace

std::vector<Row> rows_of(const History& history, const ViewState& state, bool arguments) {
    std::vector<Row> rows;
    for (const ProcessSample& process : history.latest().processes) {
        Row row = row_of(process, history, arguments);
        if (passes(row, process, state.filter)) {
            rows.push_back(std::move(row));
        }
    }
    std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
        const double left = weight_of(a, state.sort);
        const double right = weight_of(b, state.sort);
        const bool less = state.sort == SortKey::command ? a.command < b.command : left > right;
        const bool more = state.sort == SortKey::command ? b.command < a.command : right > left;
        return state.reversed ? more : less;
    });
    return rows;
}

std::string compact_bytes(std::uint64_t bytes) {
    constexpr std::array<const char*, 6> units = {"", "K", "M", "G", "T", "P"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (unit + 1 < units.size() && value >= 1023.95) {
        value /= 1024;
        ++unit;
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), unit == 0 || value >= 99.95 ? "%.0f%s" : "%.1f%s",
                  value, units.at(unit));
    return text.data();
}

std::string compact_growth(const std::optional<std::int64_t>& bytes) {
    if (!bytes) {
        return {};
    }
    const std::string size =
        compact_bytes(static_cast<std::uint64_t>(*bytes < 0 ? -*bytes : *bytes));
    return *bytes == 0 ? "0" : (*bytes < 0 ? "-" : "+") + size;
}

std::string sparkline(const std::vector<std::uint64_t>& values, std::size_t width, bool ascii) {
    static constexpr std::array<const char*, 8> blocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static constexpr std::array<const char*, 8> letters = {"_", ".", ",", "-", "~", "=", "*", "#"};
    if (values.empty() || width == 0) {
        return {};
    }
    // Two minutes at one sample a second look the same in any width.
    const std::size_t count = std::min<std::size_t>(values.size(), 120);
    const std::vector<std::uint64_t> last(values.end() - static_cast<std::ptrdiff_t>(count),
                                          values.end());
    const std::size_t columns = std::min(width, count);
    const auto [lowest, highest] = std::minmax_element(last.begin(), last.end());
    const double span = static_cast<double>(*highest - *lowest);
    std::string line;
    for (std::size_t column = 0; column < columns; ++column) {
        const std::size_t begin = column * count / columns;
        const std::size_t end = std::max(begin + 1, (column + 1) * count / columns);
        const std::uint64_t value =
            *std::max_element(last.begin() + static_cast<std::ptrdiff_t>(begin),
                              last.begin() + static_cast<std::ptrdiff_t>(end));
        const double part =
            span == 0 ? (value == 0 ? 0.0 : 0.5) : static_cast<double>(value - *lowest) / span;
        const auto level = static_cast<std::size_t>(std::lround(part * 7));
        line += ascii ? letters.at(level) : blocks.at(level);
    }
    return line;
}

std::string ranges_of(const std::vector<unsigned>& numbers) {
    std::string text;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
            ++last;
        }
        text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
        if (last > i) {
            text += (last > i + 1 ? "-" : ",") + std::to_string(numbers[last]);
        }
        i = last + 1;
    }
    return text;
}

}  // namespace memlab::tools
