// The gate of yield and restore with real threads, for ThreadSanitizer too; every order of its
// steps: tests/model_check/test_step_aside.cpp.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <pthread.h>
#include <unistd.h>

#include "interpose/moving/gate.hpp"
#include "profiler/clock.hpp"
#include "tests/catch.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t gate_second = 1'000'000'000;
using std::chrono::milliseconds;

/// Nothing else in this process uses the gate.
class OpenGate {
  public:
    OpenGate() {
        gate.forget_after_fork();
        gate.turn_on();
    }
    ~OpenGate() { gate.open(); }
};

bool within_a_second(const std::atomic<bool>& what) {
    for (int i = 0; i < 1000 && !what.load(); ++i) {
        std::this_thread::sleep_for(milliseconds(1));
    }
    return what.load();
}

bool until_none_is_under_way() {
    for (int i = 0; i < 2000 && gate.under_way() != 0; ++i) {
        std::this_thread::sleep_for(milliseconds(1));
    }
    return gate.under_way() == 0;
}

std::uint64_t in_a_while() {
    return profiler::monotonic_ns() + 20 * gate_second;
}

void close_and_sleep(bool comes_back = false) {
    REQUIRE(gate.close(in_a_while(), comes_back));
    REQUIRE(gate.advance(Phase::closing, Phase::draining));
    REQUIRE(gate.advance(Phase::draining, Phase::moving_out));
    REQUIRE(gate.advance(Phase::moving_out, Phase::asleep));
}

TEST_CASE("gate: nothing passes from the moment that no call is under way") {
    const OpenGate open;
    std::atomic<bool> ends{false};
    std::atomic<std::uint64_t> passed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
            while (!ends.load()) {
                const Passage passage;
                const Passage nested;
                passed.fetch_add(1);
            }
        });
    }
    for (int round = 0; round < 200; ++round) {
        REQUIRE(gate.close(in_a_while(), false));
        REQUIRE(until_none_is_under_way());
        const std::uint64_t before = passed.load();
        if (round % 20 == 0) {
            std::this_thread::sleep_for(milliseconds(2));
        }
        CHECK(passed.load() == before);
        gate.open();
        while (passed.load() == before) {
            std::this_thread::yield();
        }
    }
    ends.store(true);
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(gate.under_way() == 0);
    CHECK(gate.waiting() == 0);
}

TEST_CASE("gate: who waits opens it when the time is over and the mover is stuck") {
    const OpenGate open;
    for (const bool draining : {false, true}) {
        REQUIRE(gate.close(profiler::monotonic_ns() + gate_second / 10, false));
        if (draining) {
            REQUIRE(gate.advance(Phase::closing, Phase::draining));
        }
        const std::uint64_t begin = profiler::monotonic_ns();
        std::thread([] { const Passage passage; }).join();
        CHECK(profiler::monotonic_ns() - begin < 5 * gate_second);
        CHECK(gate.phase() == Phase::running);
        CHECK_FALSE(gate.advance(Phase::draining, Phase::moving_out));
    }
}

TEST_CASE("gate: only one closes it, and what is past draining is not given up") {
    const OpenGate open;
    REQUIRE(gate.close(0, false));  // the time is over at once
    CHECK_FALSE(gate.close(in_a_while(), false));
    REQUIRE(gate.advance(Phase::closing, Phase::draining));
    REQUIRE(gate.advance(Phase::draining, Phase::moving_out));
    std::atomic<bool> passed{false};
    std::thread waits([&] {
        const Passage passage;
        passed.store(true);
    });
    std::this_thread::sleep_for(milliseconds(400));
    CHECK_FALSE(passed.load());
    gate.open();
    waits.join();
    CHECK(passed.load());
}

TEST_CASE("gate: a call that waits brings the memory back where the program has yielded itself") {
    const OpenGate open;
    close_and_sleep(true);
    CHECK_FALSE(gate.wanted_back());
    std::thread waits([] { const Passage passage; });
    for (int i = 0; i < 1000 && !gate.wanted_back(); ++i) {
        std::this_thread::sleep_for(milliseconds(1));
    }
    CHECK(gate.wanted_back());
    gate.open();
    waits.join();
}

TEST_CASE("gate: a handler of the program's asks for the memory, one of memlab's does not") {
    const OpenGate open;
    for (const bool own : {true, false}) {
        close_and_sleep();
        struct sigaction action {};
        action.sa_flags = SA_RESTART;
        if (own) {
            action.sa_handler = [](int) { gate.own_handler_ran(); };
        } else {
            action.sa_handler = [](int) {};
        }
        REQUIRE(::sigaction(SIGUSR1, &action, nullptr) == 0);
        std::atomic<int> error{0};
        std::thread waits([&] {
            errno = 77;
            const Passage passage;
            error.store(errno);
        });
        while (gate.waiting() == 0) {
            std::this_thread::yield();
        }
        std::this_thread::sleep_for(milliseconds(50));
        ::pthread_kill(waits.native_handle(), SIGUSR1);
        std::this_thread::sleep_for(milliseconds(100));
        CHECK(gate.wanted_back() == !own);
        gate.open();
        waits.join();
        CHECK(error.load() == 77);
    }
}

TEST_CASE("gate: the thread by which the process ends waits for nobody") {
    const OpenGate open;
    close_and_sleep();
    std::atomic<bool> refused{false};
    std::thread([&] {
        gate.exiting();
        const Passage passage;
        refused.store(passage.refused());
    }).join();
    CHECK(within_a_second(refused));
    CHECK(gate.under_way() == 0);
}

TEST_CASE("gate: what a thread had under way when it ended is over") {
    const OpenGate open;
    alignas(Passage) static std::byte left[sizeof(Passage)];
    std::thread([] { new (left) Passage; }).join();
    CHECK(gate.under_way() == 0);
    CHECK(gate.waiting() == 0);
}

}  // namespace
}  // namespace memlab::interpose
