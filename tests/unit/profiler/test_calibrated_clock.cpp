// The calibrated clock on simulated hosts of every kind: it never decreases and never drifts.
#include "profiler/calibrated_clock.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "profiler/clock.hpp"
#include "tests/catch.hpp"

using memlab::profiler::CalibratedClock;

namespace {

/// A machine whose time a test moves.
struct Machine {
    double ns = 5e9;
    double ticks = 7e12;
    double ticks_of_ns = 2.6;
    std::uint64_t clock_readings = 0;

    void pass(double duration_ns) {
        ns += duration_ns;
        ticks += duration_ns * ticks_of_ns;
    }
};

struct MachinesTime {
    Machine* machine;
    std::uint64_t counter() const { return static_cast<std::uint64_t>(machine->ticks); }
    std::uint64_t clock_ns() const {
        ++machine->clock_readings;
        return static_cast<std::uint64_t>(machine->ns);
    }
};

using Clock = CalibratedClock<MachinesTime>;

/// Reads it at random moments over `duration_ns`, 200 ns to 200 us apart; the largest error.
double largest_error(Clock& clock, Machine& machine, double duration_ns, std::mt19937_64& random) {
    double largest = 0;
    std::uint64_t before = clock.now();
    std::uniform_real_distribution<double> exponent(2.3, 5.3);
    for (const double end = machine.ns + duration_ns; machine.ns < end;) {
        machine.pass(std::pow(10.0, exponent(random)));
        const std::uint64_t reading = clock.now();
        REQUIRE(reading >= before);
        before = reading;
        largest = std::max(largest, std::abs(static_cast<double>(reading) - machine.ns));
    }
    return largest;
}

}  // namespace

TEST_CASE("the calibrated clock agrees with the system's clock and rarely reads it") {
    std::mt19937_64 random(1);
    for (const double rate : {0.05, 0.9999, 1.0, 2.6, 5.7}) {
        CAPTURE(rate);
        Machine machine;
        machine.ticks_of_ns = rate;
        Clock clock(true, MachinesTime{&machine});
        CHECK(largest_error(clock, machine, 1e9, random) < 50);
        machine.clock_readings = 0;
        std::uint64_t sum = 0;
        for (int i = 0; i < 100'000; ++i) {
            machine.pass(1000);
            sum += clock.now();
        }
        CHECK(sum > 0);
        CHECK(machine.clock_readings < 500);
    }
}

TEST_CASE("the calibrated clock follows a clock whose rate NTP adjusts") {
    std::mt19937_64 random(2);
    Machine machine;
    Clock clock(true, MachinesTime{&machine});
    for (int turn = 0; turn < 20; ++turn) {
        machine.ticks_of_ns = 2.6 * (1 + (turn % 2 == 0 ? 500e-6 : -500e-6));
        CHECK(largest_error(clock, machine, 2e8, random) < 1100);  // 2 x 500 ppm of a millisecond
    }
}

TEST_CASE(
    "the calibrated clock recovers after a sleep, a move to another machine and a restarted "
    "counter") {
    std::mt19937_64 random(3);
    Machine machine;
    Clock clock(true, MachinesTime{&machine});
    CHECK(largest_error(clock, machine, 1e9, random) < 50);
    machine.ticks += 1e12;  // suspended: the counter went on, the clock did not
    CHECK(largest_error(clock, machine, 1e9, random) < 50);
    machine.ns += 1e12;  // stopped with its counter: not noticed for a millisecond
    machine.pass(2e6);
    CHECK(largest_error(clock, machine, 1e9, random) < 50);
    machine.ticks = 1000;
    CHECK(largest_error(clock, machine, 1e9, random) < 50);
    machine.ticks_of_ns = 3.4;  // another machine; a millisecond may be off by a third of itself
    (void)largest_error(clock, machine, 1e7, random);
    CHECK(largest_error(clock, machine, 1e9, random) < 50);
}

TEST_CASE("a counter that stands still is not waited for") {
    std::mt19937_64 random(4);
    for (const double rate : {0.0, 0.001}) {
        Machine machine;
        machine.ticks_of_ns = rate;
        Clock clock(true, MachinesTime{&machine});
        CHECK(largest_error(clock, machine, 1e8, random) < 1);
    }
    Machine machine;
    Clock clock(false, MachinesTime{&machine});
    CHECK(largest_error(clock, machine, 1e8, random) < 1);
}

TEST_CASE("on this machine the calibrated clock lies between two readings of the system's clock") {
    using memlab::profiler::MachineTime;
    using memlab::profiler::monotonic_ns;
    CalibratedClock<MachineTime> clock(memlab::profiler::counter_is_clock_source());
    std::uint64_t largest = 0;
    for (const std::uint64_t end = monotonic_ns() + 200'000'000; monotonic_ns() < end;) {
        const std::uint64_t before = monotonic_ns();
        const std::uint64_t reading = clock.now();
        const std::uint64_t after = monotonic_ns();
        largest = std::max(largest, before > reading ? before - reading : 0);
        largest = std::max(largest, reading > after ? reading - after : 0);
    }
    CHECK(largest < 20'000);
}
