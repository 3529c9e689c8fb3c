// A time of the wall clock as text, in UTC.
#pragma once

#include <cstdint>
#include <string>

namespace memlab::model {

/// "2026-01-31T12:34:56.123456Z" of nanoseconds since the Unix epoch. Not by gmtime and strftime,
/// which use time zones and locales.
inline std::string iso_time(std::uint64_t wall_ns) {
    constexpr std::uint64_t ns_per_second = 1000000000;
    constexpr std::uint64_t seconds_per_day = 86400;
    const std::uint64_t seconds = wall_ns / ns_per_second;
    const std::uint64_t second_of_day = seconds % seconds_per_day;
    // Days to a date, Howard Hinnant's civil_from_days: years begin in March, eras have 400 years.
    const std::uint64_t days = seconds / seconds_per_day + 719468;
    const std::uint64_t era = days / 146097;
    const std::uint64_t day_of_era = days % 146097;
    const std::uint64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const std::uint64_t day_of_year =
        day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const std::uint64_t shifted_month = (5 * day_of_year + 2) / 153;
    const std::uint64_t day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    const std::uint64_t month = shifted_month < 10 ? shifted_month + 3 : shifted_month - 9;
    const std::uint64_t year = era * 400 + year_of_era + (month <= 2 ? 1 : 0);

    std::string text;
    const auto put = [&text](std::uint64_t value, std::size_t digits, char after) {
        const std::size_t begin = text.size();
        text.append(digits, '0');
        for (std::size_t i = begin + digits; i-- > begin; value /= 10) {
            text[i] = static_cast<char>('0' + value % 10);
        }
        text.push_back(after);
    };
    put(year, 4, '-');
    put(month, 2, '-');
    put(day, 2, 'T');
    put(second_of_day / 3600, 2, ':');
    put(second_of_day / 60 % 60, 2, ':');
    put(second_of_day % 60, 2, '.');
    put(wall_ns % ns_per_second / 1000, 6, 'Z');
    return text;
}

}  // namespace memlab::model
