// What memlab does in a context on nobody's behalf, beside calls that may end the context.
#include "interpose/memory/end_gate.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/catch.hpp"

using memlab::interpose::EndGate;

TEST_CASE("nobody uses a context beside a call that may end it") {
    EndGate gate;
    gate.begin();
    gate.begin();
    gate.finish();
    CHECK(gate.ending());
    CHECK_FALSE(EndGate::Use(gate).held());
    CHECK_FALSE(EndGate::Use(gate, 1'000'000).held());
    gate.finish();
    CHECK_FALSE(gate.ending());
    CHECK(EndGate::Use(gate).held());
}

TEST_CASE("such a call begins when nobody uses the context any more") {
    EndGate gate;
    std::atomic<bool> used{true};
    bool too_early = true;
    std::thread other;
    {
        const EndGate::Use first(gate);
        const EndGate::Use second(gate);
        REQUIRE(first.held());
        REQUIRE(second.held());
        other = std::thread([&] {
            gate.begin();
            too_early = used;
            gate.finish();
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        used = false;
    }
    other.join();
    CHECK_FALSE(too_early);
}

TEST_CASE("such a call waits as long as a lasting use does") {
    EndGate gate;
    std::atomic<bool> used{true};
    bool too_early = true;
    std::thread other;
    {
        const EndGate::Use use(gate, 0, EndGate::Kind::lasting);
        REQUIRE(use.held());
        other = std::thread([&] {
            gate.begin();
            too_early = used;
            gate.finish();
        });
        std::this_thread::sleep_for(std::chrono::nanoseconds(EndGate::max_wait_ns) +
                                    std::chrono::milliseconds(200));
        used = false;
    }
    other.join();
    CHECK_FALSE(too_early);
}

TEST_CASE("a use comes in its turn beside calls without a pause") {
    EndGate gate;
    std::atomic<bool> over{false};
    std::atomic<int> calls{0};
    std::array<std::thread, 3> callers;
    for (std::thread& each : callers) {
        each = std::thread([&] {
            while (!over) {
                gate.begin();
                ++calls;
                std::this_thread::sleep_for(std::chrono::microseconds(200));
                --calls;
                gate.finish();
            }
        });
    }
    for (int i = 0; i < 20; ++i) {
        const EndGate::Use use(gate, EndGate::max_wait_ns);
        CHECK(use.held());
        CHECK(calls == 0);
    }
    over = true;
    for (std::thread& each : callers) {
        each.join();
    }
}
