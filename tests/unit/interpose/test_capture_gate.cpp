// The capture gate under calls that hold it without a gap: a capture begins all the same.
#include "interpose/driver/capture_gate.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/catch.hpp"

using memlab::interpose::CaptureGate;

TEST_CASE("a capture begins although two threads hold the gate by turns without a gap") {
    using Clock = std::chrono::steady_clock;
    constexpr int max_turns = 5000;
    CaptureGate gate;
    std::atomic<int> turns{0};
    std::atomic<bool> begun{false};
    // Each lets go once the other has it as well; or, where the other has to wait, after a while.
    const auto hold_by_turns = [&] {
        while (!begun && turns < max_turns) {
            const CaptureGate::Shared shared(gate);
            const int turn = ++turns;
            const auto until = Clock::now() + std::chrono::milliseconds(10);
            while (turns == turn && !begun && Clock::now() < until) {
                std::this_thread::yield();
            }
        }
    };
    std::thread first(hold_by_turns);
    std::thread second(hold_by_turns);
    while (turns < 4) {
        std::this_thread::yield();
    }
    const CUresult result =
        gate.begin(nullptr, false, nullptr, [] { return CUDA_ERROR_NOT_SUPPORTED; });
    const int turns_until_begun = turns;
    begun = true;
    first.join();
    second.join();
    CHECK(result == CUDA_ERROR_NOT_SUPPORTED);
    CHECK_FALSE(gate.capturing());
    CHECK(turns_until_begun < max_turns);
}
