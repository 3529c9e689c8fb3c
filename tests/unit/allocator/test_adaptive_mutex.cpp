// The pool's lock: excludes, wakes whoever sleeps, and neither burns the processor nor loses
// anyone. Intended for ThreadSanitizer too.
#include "allocator/adaptive_mutex.hpp"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

namespace memlab::allocator::testing {

namespace {

using namespace std::chrono_literals;

constexpr auto longer_than_spins = 100us;

/// The processor time of the calling thread.
std::chrono::nanoseconds thread_time() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

template <class Work>
void run_threads(int count, const Work& work) {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
        threads.emplace_back(work, i);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

#ifndef __SANITIZE_THREAD__
sigjmp_buf way_out;

void jump_out(int /*signal*/) {
    siglongjmp(way_out, 1);
}
#endif

}  // namespace

TEST_CASE("one thread at a time has the lock") {
    AdaptiveMutex mutex;
    constexpr int workers = 8;
    constexpr int times = 20'000;
    std::uint64_t counted = 0;  // not atomic
    std::atomic<std::uint64_t> refused{0};
    run_threads(workers, [&](int worker) {
        for (int i = 0; i < times; ++i) {
            std::unique_lock lock(mutex, std::defer_lock);
            // Some try first; some hold it for longer than others spin, so that these sleep.
            if (worker % 2 == 0 && !lock.try_lock()) {
                ++refused;
            }
            if (!lock.owns_lock()) {
                lock.lock();
            }
            ++counted;
            if (i % 2048 == worker) {
                std::this_thread::sleep_for(longer_than_spins);
            }
        }
    });
    CHECK(counted == std::uint64_t{workers} * times);
    CHECK(mutex.try_lock());  // nobody left it locked
    CHECK_FALSE(mutex.try_lock());
    mutex.unlock();
}

TEST_CASE("whoever waits long sleeps, and is woken") {
    AdaptiveMutex mutex;
    std::atomic<std::int64_t> most_ns{0};
    std::atomic<bool> errno_changed{false};
    std::atomic<int> in_turn{0};
    std::unique_lock held(mutex);
    std::thread holder([&] {
        run_threads(6, [&](int) {
            errno = ENOENT;
            const auto before = thread_time();
            const std::lock_guard lock(mutex);
            const std::int64_t spent = (thread_time() - before).count();
            std::int64_t most = most_ns.load();
            while (most < spent && !most_ns.compare_exchange_weak(most, spent)) {
            }
            errno_changed = errno_changed || errno != ENOENT;
            ++in_turn;
        });
    });
    std::this_thread::sleep_for(200ms);
    CHECK(in_turn == 0);
    held.unlock();
    holder.join();
    CHECK(in_turn == 6);
    CHECK(most_ns < std::chrono::nanoseconds(20ms).count());
    CHECK_FALSE(errno_changed);
}

#ifndef __SANITIZE_THREAD__  // to which a thread that jumps out still waits for the lock
TEST_CASE("a thread that leaves its wait by a jump is not waited for") {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = jump_out;
    sigaction(SIGUSR1, &action, &before);
    AdaptiveMutex mutex;
    std::unique_lock held(mutex);
    std::thread leaving([&] {
        if (sigsetjmp(way_out, 1) == 0) {
            mutex.lock();
        }
    });
    std::this_thread::sleep_for(50ms);  // it sleeps by now
    pthread_kill(leaving.native_handle(), SIGUSR1);
    leaving.join();
    held.unlock();

    std::uint64_t counted = 0;
    run_threads(4, [&](int) {
        for (int i = 0; i < 20; ++i) {
            const std::lock_guard lock(mutex);
            ++counted;
            std::this_thread::sleep_for(longer_than_spins);
        }
    });
    CHECK(counted == 80);
    sigaction(SIGUSR1, &before, nullptr);
}
#endif

}  // namespace memlab::allocator::testing
