// The processes of a sample as rows, sorted and filtered. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/top/history.hpp"
#include "tools/top/view_state.hpp"

namespace memlab::tools {

struct Row {
    pid_t pid = 0;
    std::string user;
    std::string gpus;  ///< "0", "0,3", "0-7"
    std::optional<std::uint64_t> used;
    std::optional<std::uint64_t> allocated;  ///< none: not under memlab, or no answer
    std::optional<std::uint64_t> reserved;
    std::optional<std::uint64_t> tensors;
    Growth growth;
    std::vector<std::uint64_t> curve;  ///< the level, oldest first
    std::string rank;                  ///< empty: none
    std::string command;
    std::string shown;    ///< the same without the program's folder
    std::string trouble;  ///< "no answer", "parent gone", "zombie", ...; empty: none
    bool memlab = false;
    bool holds = false;  ///< a thread of it waits at an out-of-memory
};

/// The rows that pass the filter (a part of command, user, pid or container, without regard to
/// case), in order.
std::vector<Row> rows_of(const History& history, const ViewState& state, bool arguments);

/// "12.3G": four digits at most, in units of 1024. "0" for none.
std::string compact_bytes(std::uint64_t bytes);
/// "+1.2M", "-3.0K", "0"; empty for none.
std::string compact_growth(const std::optional<std::int64_t>& bytes);

/// `values` in `width` columns: the last ones, between their lowest and highest; a column is the
/// highest of its values.
std::string sparkline(const std::vector<std::uint64_t>& values, std::size_t width, bool ascii);

/// "0-3,7" of sorted numbers.
std::string ranges_of(const std::vector<unsigned>& numbers);

}  // namespace memlab::tools
