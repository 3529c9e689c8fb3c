// The capture gate: what counts as a capture, and that one begins under calls that hold it without
// a gap.
#include "interpose/driver/capture_gate.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/catch.hpp"

using memlab::interpose::CaptureGate;

TEST_CASE("a capture begins although two threads hold the gate by turns without a gap") {
    using Clock = std::chrono::steady_clock;
    constexpr int max_turns = 500'000;  // this thread may not run for thousands of turns
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
        gate.begin(nullptr, false, nullptr, true, [] { return CUDA_ERROR_NOT_SUPPORTED; });
    const int turns_until_begun = turns;
    begun = true;
    first.join();
    second.join();
    CHECK(result == CUDA_ERROR_NOT_SUPPORTED);
    CHECK_FALSE(gate.capturing());
    CHECK(turns_until_begun < max_turns);
}

TEST_CASE("a capture in another mode than relaxed counts as strict until it ends") {
    CaptureGate gate;
    const auto works = [] { return CUDA_SUCCESS; };
    const auto stream = [](std::uintptr_t handle) { return reinterpret_cast<CUstream>(handle); };
    const auto context = reinterpret_cast<CUcontext>(std::uintptr_t{7});
    gate.begin(stream(100), false, nullptr, true, works);
    CHECK(gate.capturing());
    CHECK_FALSE(gate.capturing_strictly());
    gate.begin(stream(200), false, context, false, works);
    gate.begin(stream(300), false, nullptr, false, [] { return CUDA_ERROR_NOT_SUPPORTED; });
    CHECK(gate.capturing_strictly());
    CHECK_FALSE(gate.end_all(context));
    CHECK_FALSE(gate.capturing_strictly());
    CHECK(gate.capturing());
    // The same stream again, in another mode.
    gate.begin(stream(100), false, nullptr, false, works);
    CHECK(gate.capturing_strictly());
    CHECK(gate.end(stream(100), false));
    CHECK_FALSE(gate.capturing_strictly());
}
