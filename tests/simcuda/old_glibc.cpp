// What the simulated driver and its C++ library call beyond glibc 2.28, besides what libmemlab.so
// calls (interpose/driver/glibc_floor.cpp). Declared by hand: headers may lack them.
#include <pthread.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <ctime>

extern "C" {
unsigned long long simcuda_old_strtoull(const char* text, char** end, int base) __asm__("strtoull");
int simcuda_old_vsscanf(const char* text, const char* format, va_list arguments) __asm__("vsscanf");

unsigned long long simcuda_strtoull(const char* text, char** end,
                                    int base) __asm__("__isoc23_strtoull");
int simcuda_sscanf(const char* text, const char* format, ...) __asm__("__isoc23_sscanf");
std::uint32_t simcuda_arc4random() __asm__("arc4random");
int simcuda_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                      const timespec* deadline) __asm__("pthread_cond_clockwait");
}

namespace {

constexpr std::int64_t second = 1'000'000'000;

std::int64_t nanoseconds(const timespec& time) {
    return time.tv_sec * second + time.tv_nsec;
}

std::int64_t now(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return nanoseconds(time);
}

}  // namespace

// glibc 2.38: C23's, which also take "0b10".
unsigned long long simcuda_strtoull(const char* text, char** end, int base) {
    return simcuda_old_strtoull(text, end, base);
}

int simcuda_sscanf(const char* text, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int result = simcuda_old_vsscanf(text, format, arguments);
    va_end(arguments);
    return result;
}

// glibc 2.36.
std::uint32_t simcuda_arc4random() {
    std::uint32_t value = 0;
    while (getrandom(&value, sizeof value, 0) != sizeof value) {
    }
    return value;
}

// glibc 2.30. Wakes for nothing ten times a second, as a condition variable may.
int simcuda_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                      const timespec* deadline) {
    const std::int64_t left = nanoseconds(*deadline) - now(clock);
    const std::int64_t until = now(CLOCK_REALTIME) + std::clamp<std::int64_t>(left, 0, second / 10);
    const timespec wake{until / second, until % second};
    const int result = pthread_cond_timedwait(condition, mutex, &wake);
    return result == ETIMEDOUT && now(clock) < nanoseconds(*deadline) ? 0 : result;
}
