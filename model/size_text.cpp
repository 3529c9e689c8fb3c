#include "model/size_text.hpp"

#include <string_view>

namespace memlab::model {

namespace {

/// bytes * 100 / 2^shift to the nearest, ties to even: as printf rounds "%.2f".
std::uint64_t hundredths(std::uint64_t bytes, unsigned shift) {
    const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
    const std::uint64_t fraction = (bytes & mask) * 100;  // below 2^47: it fits
    const std::uint64_t whole = (bytes >> shift) * 100 + (fraction >> shift);
    const std::uint64_t rest = fraction & mask;
    const std::uint64_t half = std::uint64_t{1} << (shift - 1);
    const bool up = rest > half || (rest == half && whole % 2 != 0);
    return whole + (up ? 1 : 0);
}

}  // namespace

std::string grouped(std::uint64_t number) {
    std::string digits = std::to_string(number);
    for (std::size_t from_end = 3; from_end < digits.size(); from_end += 4) {
        digits.insert(digits.size() - from_end, 1, ',');
    }
    return digits;
}

std::string size_text(std::uint64_t bytes) {
    if (bytes < 1024) {
        return std::to_string(bytes) + " B";
    }
    static constexpr const char* units[] = {" KiB", " MiB", " GiB", " TiB"};
    for (unsigned unit = 0;; ++unit) {
        const std::uint64_t number = hundredths(bytes, 10 * (unit + 1));
        // What rounds to 1024.00 belongs to the next unit.
        if (number < 102400 || unit == 3) {
            const std::uint64_t decimals = number % 100;
            return std::to_string(number / 100) + (decimals < 10 ? ".0" : ".") +
                   std::to_string(decimals) + units[unit];
        }
    }
}

std::string count_text(std::uint64_t count, const char* singular) {
    const std::string_view word = singular;
    const char* const ending = count == 1 ? "" : word.ends_with('s') ? "es" : "s";
    return grouped(count) + " " + singular + ending;
}

}  // namespace memlab::model
