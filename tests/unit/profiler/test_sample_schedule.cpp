// The rate limiter for samples of a device's memory in use.
#include "profiler/sample_schedule.hpp"

#include "tests/catch.hpp"

using memlab::profiler::IdleSchedule;
using memlab::profiler::SampleSchedule;

namespace {

constexpr std::uint64_t ms = 1'000'000;
constexpr std::uint64_t us = 1'000;

// How many samples are taken in a second of a program that could take one every 10 us.
int samples_a_second(std::uint64_t cost_ns) {
    SampleSchedule schedule;
    int taken = 0;
    std::uint64_t now = 50 * ms;
    for (const std::uint64_t end = now + 1000 * ms; now < end; now += 10 * us) {
        if (schedule.claim(now)) {
            ++taken;
            schedule.finish(now, now + cost_ns);
            now += cost_ns;
        }
    }
    return taken;
}

}  // namespace

TEST_CASE("a cheap sample is taken every 5 ms, an expensive one at a cost of 0.1 %") {
    CHECK(samples_a_second(1 * us) == 200);
    CHECK(samples_a_second(5 * us) >= 195);
    const int dear = samples_a_second(40 * us);
    CHECK(dear >= 23);
    CHECK(dear <= 25);
    CHECK(samples_a_second(200 * us) <= 5);
}

TEST_CASE("a preempted thread does not stop the sampling") {
    SampleSchedule schedule;
    REQUIRE(schedule.claim(ms));
    schedule.finish(ms, 60'000 * ms);
    CHECK_FALSE(schedule.claim(60'000 * ms));
    CHECK(schedule.claim(60'000 * ms + SampleSchedule::max_interval_ns));
}

TEST_CASE("after a claimed but abandoned sample the next one is due soon") {
    SampleSchedule schedule;
    REQUIRE(schedule.claim(ms));
    CHECK_FALSE(schedule.claim(2 * ms));
    CHECK(schedule.claim(ms + SampleSchedule::min_interval_ns));
}

TEST_CASE("the clock is read at intervals, also when the counter goes backwards") {
    SampleSchedule schedule;
    std::uint64_t counter = 5'000'000;
    CHECK(schedule.may_be_due(counter));
    int looks = 0;
    for (int i = 0; i < 1000; ++i) {
        counter += 10'000;
        looks += schedule.may_be_due(counter) ? 1 : 0;
    }
    CHECK(looks == 10);
    CHECK(schedule.may_be_due(1000));
    CHECK_FALSE(schedule.may_be_due(2000));
    CHECK(schedule.may_be_due(1'001'000));
}

TEST_CASE("samples of a figure that stays come ever more rarely, until it changes") {
    IdleSchedule schedule;
    std::uint64_t used = 100;
    const auto samples_in = [&](std::uint64_t from_ms, std::uint64_t to_ms) {
        int samples = 0;
        for (std::uint64_t now = from_ms * ms; now < to_ms * ms; now += ms) {
            if (schedule.claim(now)) {
                schedule.finish(now, used);
                ++samples;
            }
        }
        return samples;
    };
    CHECK(samples_in(1, 1000) <= 9);
    CHECK(samples_in(10'000, 20'000) <= 11);
    used = 200;
    CHECK(samples_in(20'000, 21'100) >= 2);
    CHECK(samples_in(21'100, 22'000) <= 8);
}
