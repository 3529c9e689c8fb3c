// JSON of a page: numbers that JavaScript has exactly, and columns of them.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/json_output.hpp"
#include "report/html/history.hpp"

namespace memlab::report {

/// JavaScript's numbers are exact up to there.
inline constexpr std::uint64_t max_page_number = (std::uint64_t{1} << 53) - 1;

inline std::uint64_t page_number(std::uint64_t value) {
    return std::min(value, max_page_number);
}

/// Thread-safety: none.
class PageOutput : public model::JsonOutput {
  public:
    using JsonOutput::JsonOutput;

    void limited(std::uint64_t value) { number(page_number(value)); }
    void limited_member(std::string_view name, std::uint64_t value) {
        key(name);
        limited(value);
    }
    void optional_member(std::string_view name, std::optional<std::uint64_t> value) {
        key(name);
        if (value) {
            limited(*value);
        } else {
            null();
        }
    }
    /// `value(item)`: a number.
    template <typename Items, typename Value>
    void numbers(std::string_view name, const Items& items, Value value) {
        key(name);
        begin_array();
        for (const auto& item : items) {
            number(value(item));
        }
        end_array();
    }
    template <typename Texts>
    void texts(std::string_view name, const Texts& texts) {
        key(name);
        begin_array();
        for (const std::string& text : texts) {
            string(text);
        }
        end_array();
    }
};

/// The curves of a recording at several widths of their buckets, as "curves".
void write_page_curves(const History& history, PageOutput& json);

}  // namespace memlab::report
