// What limits and measurements are counted in: whole millionths, in 128 bits. Sizes up to 2^64-1
// stay exact, "0.1%" is what it says (no binary fraction is), and what lies exactly at its limit
// compares as equal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace memlab::check {

/// What a figure counts.
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
    /// To the nearest millionth; must be finite. Beyond 2^64 either way it is 2^64.
    static Figure real(double value);

    constexpr Wide in_millionths() const { return value_; }
    double as_double() const { return static_cast<double>(value_) / static_cast<double>(one); }
    bool is_whole() const { return value_ % one == 0; }
    /// Must be whole, and from 0 to 2^64-1.
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

/// "4.00 GiB", "1,234", "12.5%", "512 B per step"; a negative one has its sign in front.
std::string figure_text(Figure figure, Unit unit);

/// A number without sign and what follows it ("1.5 GiB", "20%"), blanks around both taken off. At
/// most six decimals, and nothing above 2^64. Nothing where there is no such number.
struct NumberAndUnit {
    Figure number;
    std::string_view unit;
};
std::optional<NumberAndUnit> split_number(std::string_view text);

/// `number` of a size's `unit`: "", "B", "KiB" to "TiB", or K, M, G, T, in any case. Nothing for
/// other units and above 2^64.
std::optional<Figure> in_bytes(Figure number, std::string_view unit);

}  // namespace memlab::check
