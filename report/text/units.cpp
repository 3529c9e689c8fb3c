#include "report/text/units.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "model/size_text.hpp"

namespace memlab::report {

namespace {

constexpr int max_power = 4;

template <typename... Args>
std::string print(const char* format, Args... args) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), format, args...);
    return text.data();
}

}  // namespace

const char* ByteUnit::name() const {
    static constexpr std::array<const char*, max_power + 1> names = {"B", "KiB", "MiB", "GiB",
                                                                     "TiB"};
    return names.at(static_cast<std::size_t>(power));
}

double ByteUnit::bytes() const {
    return std::ldexp(1.0, 10 * power);
}

ByteUnit unit_for(std::uint64_t bytes) {
    ByteUnit unit;
    // 1023.995 KiB would print as "1024.00 KiB": it belongs to the next unit.
    while (unit.power < max_power &&
           static_cast<double>(bytes) / unit.bytes() >= (unit.power == 0 ? 1024.0 : 1023.995)) {
        ++unit.power;
    }
    return unit;
}

std::string format_bytes(std::uint64_t bytes) {
    return model::size_text(bytes);
}

std::string format_bytes(std::uint64_t bytes, ByteUnit unit) {
    if (unit.power == 0) {
        return print("%llu B", static_cast<unsigned long long>(bytes));
    }
    return print("%.2f %s", static_cast<double>(bytes) / unit.bytes(), unit.name());
}

std::string format_count(std::uint64_t count) {
    return model::grouped(count);
}

std::string format_duration(std::uint64_t nanoseconds) {
    const auto ns = static_cast<double>(nanoseconds);
    if (nanoseconds < 1'000) {
        return print("%llu ns", static_cast<unsigned long long>(nanoseconds));
    }
    if (ns < 999'950) {
        return print("%.1f us", ns / 1e3);
    }
    if (ns < 999'995'000) {
        return print("%.2f ms", ns / 1e6);
    }
    if (ns < 59'999'500'000) {
        return print("%.3f s", ns / 1e9);
    }
    const std::uint64_t seconds = (nanoseconds + 500'000'000 < nanoseconds)
                                      ? nanoseconds / 1'000'000'000
                                      : (nanoseconds + 500'000'000) / 1'000'000'000;
    if (seconds < 3600) {
        return print("%llu min %02llu s", static_cast<unsigned long long>(seconds / 60),
                     static_cast<unsigned long long>(seconds % 60));
    }
    const auto hours = static_cast<unsigned long long>(seconds / 3600);
    if (hours >= 24'000) {
        return print("%llu d", hours / 24);
    }
    if (hours >= 1000) {
        return print("%llu d %02llu h", hours / 24, hours % 24);
    }
    return print("%llu h %02llu min", hours, static_cast<unsigned long long>(seconds % 3600 / 60));
}

std::string format_percent(std::uint64_t part, std::uint64_t whole) {
    if (whole == 0) {
        return "-";
    }
    const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
    if (part != 0 && percent < 0.05) {
        return "<0.1%";
    }
    return print("%.1f%%", percent);
}

std::string format_plural(std::uint64_t count, const char* singular) {
    return model::count_text(count, singular);
}

std::uint64_t wall_time_now_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

std::string format_wall_time(std::uint64_t unix_nanoseconds) {
    const auto seconds = static_cast<std::time_t>(unix_nanoseconds / 1'000'000'000);
    std::tm parts{};
    if (localtime_r(&seconds, &parts) == nullptr) {
        return "?";
    }
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
    return text.data();
}

}  // namespace memlab::report
