// Formatted numbers: boundaries between units, smallest and largest values.
#include <cstdlib>
#include <limits>

#include "report/text/units.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;

TEST_CASE("bytes have two decimals and change unit where rounding would reach 1024") {
    const std::uint64_t kib = 1024;
    CHECK(format_bytes(0) == "0 B");
    CHECK(format_bytes(1) == "1 B");
    CHECK(format_bytes(1023) == "1023 B");
    CHECK(format_bytes(kib) == "1.00 KiB");
    CHECK(format_bytes(kib * kib - 1) == "1.00 MiB");
    CHECK(format_bytes(kib * kib - 6) == "1023.99 KiB");
    CHECK(format_bytes(4'000'000) == "3.81 MiB");
    CHECK(format_bytes(20 * kib * kib) == "20.00 MiB");
    CHECK(format_bytes(80 * kib * kib * kib) == "80.00 GiB");
    CHECK(format_bytes(std::numeric_limits<std::uint64_t>::max()) == "16777216.00 TiB");
}

TEST_CASE("a column's unit is applied to all its values") {
    const ByteUnit unit = unit_for(20 << 20);
    CHECK(format_bytes(0, unit) == "0.00 MiB");
    CHECK(format_bytes(512, unit) == "0.00 MiB");
    CHECK(format_bytes(4'000'000, unit) == "3.81 MiB");
}

TEST_CASE("counts are grouped by thousands") {
    CHECK(format_count(0) == "0");
    CHECK(format_count(999) == "999");
    CHECK(format_count(1'000) == "1,000");
    CHECK(format_count(1'234'567) == "1,234,567");
    CHECK(format_count(std::numeric_limits<std::uint64_t>::max()) == "18,446,744,073,709,551,615");
    CHECK(format_plural(1, "allocation") == "1 allocation");
    CHECK(format_plural(0, "allocation") == "0 allocations");
}

TEST_CASE("durations never show a rounded-up unit") {
    CHECK(format_duration(0) == "0 ns");
    CHECK(format_duration(999) == "999 ns");
    CHECK(format_duration(1'000) == "1.0 us");
    CHECK(format_duration(999'949) == "999.9 us");
    CHECK(format_duration(999'950) == "1.00 ms");
    CHECK(format_duration(999'994'999) == "999.99 ms");
    CHECK(format_duration(999'995'000) == "1.000 s");
    CHECK(format_duration(59'999'499'999) == "59.999 s");
    CHECK(format_duration(59'999'500'000) == "1 min 00 s");
    CHECK(format_duration(125'000'000'000) == "2 min 05 s");
    CHECK(format_duration(10'920'000'000'000) == "3 h 02 min");
    CHECK(format_duration(std::numeric_limits<std::uint64_t>::max()) == "213503 d");
    CHECK(format_duration(std::uint64_t{999} * 3'600'000'000'000) == "999 h 00 min");
    CHECK(format_duration(std::uint64_t{8760} * 3'600'000'000'000) == "365 d 00 h");
}

TEST_CASE("a percentage that is not zero never reads as zero") {
    CHECK(format_percent(0, 100) == "0.0%");
    CHECK(format_percent(1, 100'000) == "<0.1%");
    CHECK(format_percent(631, 1000) == "63.1%");
    CHECK(format_percent(1, 0) == "-");
}

TEST_CASE("wall time is printed in the local zone") {
    setenv("TZ", "UTC", 1);
    CHECK(format_wall_time(0) == "1970-01-01 00:00:00");
    CHECK(format_wall_time(1'772'374'427'999'999'999) == "2026-03-01 14:13:47");
}
