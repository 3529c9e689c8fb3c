// What the live memory is for, over time: the allocated curve of a device by category
// (report/symbols/category.hpp).
//
// Each step of time shows the moment at which the allocated curve was highest in it, so that the
// bytes of all categories are that curve's value exactly, and none is shown beside another's that
// was freed before. A site is of one category, which is known only at the end of the recording, so
// the event log is read after the report was made of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/symbols/category.hpp"

namespace memlab::report {

/// Live bytes by Category.
using CategoryBytes = std::array<std::uint64_t, category_count>;

/// Their sum: the allocated curve's value. Exact: all are live on one device at a time.
std::uint64_t sum(const CategoryBytes& bytes);

/// A step of time in which something happened.
struct CategoryRow {
    std::uint64_t begin_ns = 0;
    std::uint64_t at_ns = 0;  ///< when the allocated curve was highest in it, first
    CategoryBytes bytes{};    ///< at that moment
    CategoryBytes last{};     ///< at its end, and until the next row
};

struct CategoryTimeline {
    /// Values within the time range.
    struct Figures {
        std::uint64_t at_begin = 0;
        std::uint64_t highest = 0;
        std::uint64_t highest_ns = 0;  ///< the first time
        std::uint64_t at_end = 0;
    };
    std::uint64_t device = 0;  ///< Device::index
    std::uint64_t bucket_ns = 0;
    std::vector<CategoryRow> rows;  ///< in order of time; the first has the values at the start
    std::array<Figures, category_count> figures{};
    std::uint64_t highest_ns = 0;  ///< when the allocated curve was highest, first
    CategoryBytes at_highest{};
    const char* doubt = nullptr;  ///< doubt_about_categories() of the device
};

/// Of the report's devices that have categories, from its event log `log`: [from_ns, to_ns], at
/// most 1024 rows each. May throw std::bad_alloc.
std::vector<CategoryTimeline> read_categories(const model::Report& report, const std::string& log,
                                              std::uint64_t from_ns, std::uint64_t to_ns,
                                              Resolver& resolver);

}  // namespace memlab::report
