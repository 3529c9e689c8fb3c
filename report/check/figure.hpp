// A fixed-point number for limits and measurements: millionths in 128 bits. Sizes up to 2^64-1 and
// decimal fractions such as "0.1%" are exact, so a measurement that equals its limit compares
// equal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace memlab::report::check {

/// The unit of a figure.
enum class Unit : std::uint8_t {
    bytes,
    bytes_per_step,
    count,
    share,  ///< 0 to 1
};

class Figure {
  public:
    __extension__ using Wide = __int128;

    constexpr Figure() = default;
    static constexpr Figure whole(std::uint64_t value) {
        return Figure(static_cast<Wide>(value) * one);
    }
    static constexpr Figure millionths(Wide value) { return Figure(value); }
    /// Rounded to millionths and clamped to +-2^64; `value` must be finite.
    static Figure real(double value);

    constexpr Wide in_millionths() const { return value_; }
    double as_double() const { return static_cast<double>(value_) / static_cast<double>(one); }
    bool is_whole() const { return value_ % one == 0; }
    /// Must be a whole number from 0 to 2^64-1.
    std::uint64_t as_whole() const { return static_cast<std::uint64_t>(value_ / one); }

    friend constexpr Figure operator+(Figure a, Figure b) { return Figure(a.value_ + b.value_); }
    friend constexpr Figure operator-(Figure a, Figure b) { return Figure(a.value_ - b.value_); }
    constexpr bool operator==(const Figure&) const = default;
    // NOLINTNEXTLINE(modernize-use-nullptr): the 0 it complains of is the compiler's own.
    constexpr auto operator<=>(const Figure&) const = default;

    static constexpr Wide one = 1'000'000;

  private:
    explicit constexpr Figure(Wide value) : value_(value) {}

    Wide value_ = 0;
};

/// "4.00 GiB", "1,234", "12.5%", "512 B per step"; negative ones with a leading "-".
std::string figure_text(Figure figure, Unit unit);

/// An unsigned number and the unit behind it ("1.5 GiB", "20%"), both trimmed. At most six
/// decimals, at most 2^64; else std::nullopt.
struct NumberAndUnit {
    Figure number;
    std::string_view unit;
};
std::optional<NumberAndUnit> split_number(std::string_view text);

/// `number` times the size unit `unit` (model::unit_shift()). std::nullopt for other units and
/// above 2^64.
std::optional<Figure> in_bytes(Figure number, std::string_view unit);

}  // namespace memlab::report::check
