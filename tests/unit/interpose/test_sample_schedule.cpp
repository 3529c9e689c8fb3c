// How often the driver is asked how much of a device is in use.
#include "interpose/memory/sample_schedule.hpp"

#include "tests/catch.hpp"

using memlab::interpose::SampleSchedule;

namespace {

constexpr std::uint64_t ms = 1'000'000;
constexpr std::uint64_t us = 1'000;

// How many samples are taken in a second of a program that could take one every 10 us.
int samples_a_second(std::uint64_t cost_ns) {
    SampleSchedule schedule;
    int taken = 0;
    std::uint64_t now = 50 * ms;
    for (const std::uint64_t end = now + 1000 * ms; now < end; now += 10 * us) {
        if (schedule.take(now)) {
            ++taken;
            schedule.took(now, now + cost_ns);
            now += cost_ns;
        }
    }
    return taken;
}

}  // namespace

TEST_CASE("a cheap answer is asked for every 5 ms, a dear one as often as costs 0.1 %") {
    CHECK(samples_a_second(1 * us) == 200);
    CHECK(samples_a_second(5 * us) >= 195);
    const int dear = samples_a_second(40 * us);
    CHECK(dear >= 23);
    CHECK(dear <= 25);
    CHECK(samples_a_second(200 * us) <= 5);
}

TEST_CASE("a thread that was held up does not end the sampling") {
    SampleSchedule schedule;
    REQUIRE(schedule.take(ms));
    schedule.took(ms, 60'000 * ms);
    CHECK_FALSE(schedule.take(60'000 * ms));
    CHECK(schedule.take(60'000 * ms + SampleSchedule::max_interval_ns));
}

TEST_CASE("a sample that is not taken after all leaves the next one due soon") {
    SampleSchedule schedule;
    REQUIRE(schedule.take(ms));
    CHECK_FALSE(schedule.take(2 * ms));
    CHECK(schedule.take(ms + SampleSchedule::least_interval_ns));
}

TEST_CASE("the clock is read for a sample now and then, also when the counter goes back") {
    SampleSchedule schedule;
    std::uint64_t counter = 5'000'000;
    CHECK(schedule.worth_a_look(counter));
    int looks = 0;
    for (int i = 0; i < 1000; ++i) {
        counter += 10'000;
        looks += schedule.worth_a_look(counter) ? 1 : 0;
    }
    CHECK(looks == 10);
    CHECK(schedule.worth_a_look(1000));
    CHECK_FALSE(schedule.worth_a_look(2000));
    CHECK(schedule.worth_a_look(1'001'000));
}
