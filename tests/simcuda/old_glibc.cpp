// What the simulated driver and its C++ library call beyond glibc 2.28, besides what libmemlab.so
// calls (interpose/driver/glibc_floor.cpp). Declared by hand: headers may lack them.
#include <pthread.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>

extern "C" {
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
