#include "report/check/figure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "model/parse_size.hpp"
#include "report/text/units.hpp"

namespace memlab::report::check {

namespace {

constexpr Figure::Wide largest = (static_cast<Figure::Wide>(1) << 64) * Figure::one;

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::string size_or_count(Figure magnitude, Unit unit) {
    const Figure::Wide value = magnitude.in_millionths();
    const auto rounded = static_cast<std::uint64_t>(
        std::min((value + Figure::one / 2) / Figure::one, largest / Figure::one - 1));
    if (unit == Unit::count) {
        return report::format_count(rounded);
    }
    return report::format_bytes(rounded);
}

}  // namespace

Figure Figure::real(double value) {
    constexpr double bound = 18446744073709551616.0;
    return Figure(static_cast<Wide>(std::round(std::clamp(value, -bound, bound) * 1e6)));
}

std::string figure_text(Figure figure, Unit unit) {
    const bool negative = figure.in_millionths() < 0;
    const Figure magnitude = negative ? Figure() - figure : figure;
    std::string text = negative ? "-" : "";
    if (unit == Unit::share) {
        // "12.5%", "0.005%": two decimals, four where two would give 0.
        const double percent = 100 * magnitude.as_double();
        std::array<char, 64> digits{};
        std::snprintf(digits.data(), digits.size(), percent < 0.01 ? "%.4f" : "%.2f", percent);
        std::string shown = digits.data();
        while (shown.back() == '0' && shown[shown.size() - 2] != '.') {
            shown.pop_back();
        }
        return text + shown + "%";
    }
    text += size_or_count(magnitude, unit);
    return unit == Unit::bytes_per_step ? text + " per step" : text;
}

std::optional<NumberAndUnit> split_number(std::string_view text) {
    text = trimmed(text);
    Figure::Wide value = 0;
    std::size_t at = 0;
    for (; at < text.size() && is_digit(text[at]); ++at) {
        value = value * 10 + (text[at] - '0') * Figure::one;
        if (value > largest) {
            return std::nullopt;
        }
    }
    if (at == 0) {
        return std::nullopt;
    }
    if (at < text.size() && text[at] == '.') {
        const std::size_t point = at++;
        for (Figure::Wide worth = Figure::one / 10; at < text.size() && is_digit(text[at]); ++at) {
            if (worth == 0) {
                return std::nullopt;
            }
            value += (text[at] - '0') * worth;
            worth /= 10;
        }
        if (at == point + 1) {
            return std::nullopt;
        }
    }
    if (value > largest) {
        return std::nullopt;
    }
    return NumberAndUnit{Figure::millionths(value), trimmed(text.substr(at))};
}

std::optional<Figure> in_bytes(Figure number, std::string_view unit) {
    const std::optional<unsigned> shift = model::unit_shift(unit);
    const Figure::Wide value = number.in_millionths();
    if (!shift || value > (largest >> *shift)) {
        return std::nullopt;
    }
    return Figure::millionths(value << *shift);
}

}  // namespace memlab::report::check
