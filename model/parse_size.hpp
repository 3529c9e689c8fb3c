// The one parser of sizes that people write: options, limits, arguments. In the header alone, so
// that the table of options needs no library for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace memlab::model {

/// The power of two that a unit of bytes is: 0 for "" and "B", 10 to 40 for K, M, G and T, each
/// with
/// "", "i", "B" or "iB" behind it. All mean the same, as GPUs' sizes do: 80 GB are 80 GiB. Case is
/// ignored. None: something else.
constexpr std::optional<unsigned> unit_shift(std::string_view unit) {
    const auto lower = [unit](std::size_t at) {
        const char c = unit[at];
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    if (unit.empty() || (unit.size() == 1 && lower(0) == 'b')) {
        return 0;
    }
    constexpr std::string_view prefixes = "kmgt";
    const std::size_t prefix = prefixes.find(lower(0));
    const bool known_end = unit.size() == 1 ||
                           (unit.size() == 2 && (lower(1) == 'b' || lower(1) == 'i')) ||
                           (unit.size() == 3 && lower(1) == 'i' && lower(2) == 'b');
    if (prefix == std::string_view::npos || !known_end) {
        return std::nullopt;
    }
    return static_cast<unsigned>(10 * (prefix + 1));
}

/// "1073741824", "1GiB", "512 MB", "1.5G", "64k": bytes, rounded down where a fraction of a unit is
/// not whole. At most six decimals, and none of bytes. None: anything else, and what is too large.
constexpr std::optional<std::uint64_t> parse_size(std::string_view text) {
    constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
    const auto is_digit = [&](std::size_t at) {
        return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    std::uint64_t whole = 0;
    std::size_t at = 0;
    if (!is_digit(at)) {
        return std::nullopt;
    }
    for (; is_digit(at); ++at) {
        const auto digit = static_cast<std::uint64_t>(text[at] - '0');
        if (whole > (largest - digit) / 10) {
            return std::nullopt;
        }
        whole = whole * 10 + digit;
    }
    std::uint64_t millionths = 0;
    if (at < text.size() && text[at] == '.') {
        if (!is_digit(++at)) {
            return std::nullopt;
        }
        for (std::uint64_t worth = 100'000; is_digit(at); ++at, worth /= 10) {
            if (worth == 0) {
                return std::nullopt;
            }
            millionths += worth * static_cast<std::uint64_t>(text[at] - '0');
        }
    }
    while (at < text.size() && text[at] == ' ') {
        ++at;
    }
    const std::optional<unsigned> shift = unit_shift(text.substr(at));
    if (!shift || (*shift == 0 && millionths != 0) || whole > (largest >> *shift)) {
        return std::nullopt;
    }
    const std::uint64_t part = (millionths << *shift) / 1'000'000;
    const std::uint64_t bytes = whole << *shift;
    return part > largest - bytes ? std::nullopt : std::optional(bytes + part);
}

}  // namespace memlab::model
