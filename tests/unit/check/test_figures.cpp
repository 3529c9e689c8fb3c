// Parsing of amounts, and what a limit allows: exact, from 0 to 2^64-1.
#include <limits>

#include "report/check/limit.hpp"
#include "tests/catch.hpp"

using namespace memlab::report::check;

namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

std::optional<Bound> parsed(const char* text, Unit unit = Unit::bytes) {
    std::string problem;
    const auto bound = parse_bound(text, unit, &problem);
    // An error says what is accepted.
    REQUIRE(bound.has_value() == problem.empty());
    return bound;
}

Figure allowed_over(const char* text, std::uint64_t baseline, Unit unit = Unit::bytes) {
    return allowed(*parsed(text, unit), unit, Figure::whole(baseline));
}

}  // namespace

TEST_CASE("sizes are taken with and without units") {
    CHECK(parsed("0")->amount == Figure());
    CHECK(parsed("1048576")->amount == Figure::whole(1048576));
    CHECK(parsed(" 4 GiB ")->amount == Figure::whole(4ULL << 30));
    CHECK(parsed("1.5MiB")->amount == Figure::whole(3 << 19));
    CHECK(parsed("2k")->amount == Figure::whole(2048));
    CHECK(parsed("7 B")->amount == Figure::whole(7));
    CHECK(parsed("4GB")->amount == Figure::whole(4ULL << 30));
    CHECK(parsed("4 Gi")->amount == Figure::whole(4ULL << 30));
    CHECK(parsed("1tib")->amount == Figure::whole(1ULL << 40));
    CHECK(parsed("18446744073709551615")->amount == Figure::whole(largest));
    CHECK_FALSE(parsed("4GiB")->relative());
}

TEST_CASE("what is no amount is refused") {
    for (const char* text : {"",
                             " ",
                             "GiB",
                             "-1",
                             "1.",
                             ".5",
                             "1.2.3",
                             "1e3",
                             "4 GX",
                             "4 GiBs",
                             "0x10",
                             "1,000",
                             "++1",
                             "+",
                             "5%",
                             "1 2",
                             "99999999999999999999",
                             "18446744073709551617",
                             "17179869185GiB",
                             "0.0000001",
                             "nan",
                             "inf"}) {
        CAPTURE(text);
        CHECK_FALSE(parsed(text));
    }
    CHECK_FALSE(parsed("1.5", Unit::count));
    CHECK_FALSE(parsed("3 MiB", Unit::count));
    CHECK_FALSE(parsed("101%", Unit::share));
    CHECK_FALSE(parsed("1.01", Unit::share));
    CHECK_FALSE(parsed("20 MiB", Unit::share));
    CHECK(parsed("20%", Unit::share)->amount == parsed("0.2", Unit::share)->amount);
    CHECK(parsed("0.1%", Unit::share)->amount == Figure::millionths(1000));
}

TEST_CASE("a limit above the baseline is exact, and rounds in nobody's favour") {
    CHECK(allowed_over("+5%", 100) == Figure::whole(105));
    CHECK(allowed_over("+0", 123) == Figure::whole(123));
    CHECK(allowed_over("+0%", largest) == Figure::whole(largest));
    CHECK(allowed_over("+64MiB", 10) == Figure::whole((64 << 20) + 10));
    // Half a percent of 3 is 0.015, not 0.
    CHECK(allowed_over("+0.5%", 3) == Figure::millionths(3'015'000));
    // Any percentage of 0 is 0.
    CHECK(allowed_over("+50%", 0) == Figure());
    CHECK(allowed_over("+100%", largest) == Figure::whole(largest) + Figure::whole(largest));
    CHECK(allowed_over("+10", 5, Unit::count) == Figure::whole(15));
    // Shares: percentage points, and never above the whole.
    const Bound five = *parsed("+5%", Unit::share);
    CHECK(allowed(five, Unit::share, Figure::real(0.2)) == Figure::real(0.25));
    CHECK(allowed(five, Unit::share, Figure::real(0.99)) == Figure::whole(1));
    // Nothing overflows.
    CHECK(allowed_over("+18446744073709551615%", largest) > Figure::whole(largest));
}

TEST_CASE("figures are shown in the units of people") {
    CHECK(figure_text(Figure::whole(3 << 20), Unit::bytes) == "3.00 MiB");
    CHECK(figure_text(Figure::whole(1234), Unit::count) == "1,234");
    CHECK(figure_text(Figure::real(0.125), Unit::share) == "12.5%");
    CHECK(figure_text(Figure::real(0.0), Unit::share) == "0.0%");
    CHECK(figure_text(Figure::whole(1), Unit::share) == "100.0%");
    CHECK(figure_text(Figure::millionths(50), Unit::share) == "0.005%");
    CHECK(figure_text(Figure::real(512.4), Unit::bytes_per_step) == "512 B per step");
    CHECK(figure_text(Figure() - Figure::whole(2048), Unit::bytes) == "-2.00 KiB");
    CHECK(figure_text(Figure::whole(largest), Unit::bytes) == "16777216.00 TiB");
    CHECK(bound_text(*parsed("+5%"), Unit::bytes) == "+5.0%");
    CHECK(bound_text(*parsed("+1KiB"), Unit::bytes) == "+1.00 KiB");
}

TEST_CASE("the table of metrics is in the order of the metrics") {
    for (std::size_t i = 0; i < metrics().size(); ++i) {
        CHECK(static_cast<std::size_t>(metrics()[i].metric) == i);
        CHECK(find_metric(metrics()[i].name) == &metrics()[i]);
    }
    CHECK(find_metric("peak") == nullptr);
}
