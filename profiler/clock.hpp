// Clock readings through the vDSO: tens of nanoseconds, no system call. And a sleep.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>

namespace memlab::profiler {

inline std::uint64_t clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000ULL +
           static_cast<std::uint64_t>(now.tv_nsec);
}

inline timespec to_timespec(std::uint64_t ns) {
    constexpr std::uint64_t second_ns = 1'000'000'000;
    return {static_cast<time_t>(ns / second_ns), static_cast<long>(ns % second_ns)};
}

inline std::uint64_t monotonic_ns() {
    return clock_ns(CLOCK_MONOTONIC);
}
inline std::uint64_t wall_ns() {
    return clock_ns(CLOCK_REALTIME);
}

/// For less than a second; shorter if a signal is handled. No cancellation point, as nanosleep()
/// is.
inline void sleep_ns(std::uint64_t ns) {
    const timespec duration = to_timespec(ns);
    syscall(SYS_nanosleep, &duration, nullptr);
}

}  // namespace memlab::profiler
