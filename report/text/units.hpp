// Formats sizes, counts, durations and times for text output. JSON always has raw bytes and
// nanoseconds.
#pragma once

#include <cstdint>
#include <string>

namespace memlab::report {

/// A binary unit: 0 is B, 1 KiB, 2 MiB, 3 GiB, 4 TiB.
struct ByteUnit {
    int power = 0;

    const char* name() const;
    double bytes() const;
};

/// The largest unit in which `bytes`, rounded to two decimals, is at least 1 (B for 0).
ByteUnit unit_for(std::uint64_t bytes);

/// "3.81 MiB", "512 B", "0 B": two decimals, none for plain bytes.
std::string format_bytes(std::uint64_t bytes);

/// In a given unit ("0.00 MiB"): that of a column's largest value makes the column comparable.
std::string format_bytes(std::uint64_t bytes, ByteUnit unit);

/// "1,234,567".
std::string format_count(std::uint64_t count);

/// "850 ns", "12.3 us", "4.56 ms", "1.234 s", "2 min 05 s", "3 h 02 min".
std::string format_duration(std::uint64_t nanoseconds);

/// "63.1%"; "-" if `whole` is 0; "<0.1%" instead of "0.0%" if `part` is not 0.
std::string format_percent(std::uint64_t part, std::uint64_t whole);

/// "1 allocation", "2 allocations".
std::string format_plural(std::uint64_t count, const char* singular);

/// Nanoseconds since the Unix epoch as local time: "2026-03-01 14:02:07".
std::string format_wall_time(std::uint64_t unix_nanoseconds);

/// The time now, in nanoseconds since the Unix epoch.
std::uint64_t wall_time_now_ns();

}  // namespace memlab::report
