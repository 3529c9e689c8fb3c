// Growth is that of what stays, and a process's curve is its own.
#include "tests/catch.hpp"
#include "tests/unit/live/live_samples.hpp"
#include "tools/top/history.hpp"

namespace memlab::tools {
namespace {

constexpr std::uint64_t second = 1'000'000'000;

HistoryPoint level_at(std::uint64_t seconds, std::uint64_t allocated,
                      std::optional<std::uint64_t> steps = {}) {
    HistoryPoint point;
    point.time_ns = seconds * second;
    point.allocated = allocated;
    point.memlab = true;
    point.steps = steps;
    return point;
}

TEST_CASE("a steady leak has its own growth", "[top]") {
    std::vector<HistoryPoint> points;
    for (std::uint64_t i = 0; i <= 60; ++i) {
        points.push_back(level_at(i, 100 * mib + i * mib, i * 2));
    }
    const Growth growth = growth_of(points);
    REQUIRE(growth.per_minute);
    CHECK(*growth.per_minute == static_cast<std::int64_t>(60 * mib));
    REQUIRE(growth.per_step);
    CHECK(*growth.per_step == static_cast<std::int64_t>(mib / 2));
}

TEST_CASE("memory that swings and stays has no growth, what goes down has a negative one",
          "[top]") {
    std::vector<HistoryPoint> swinging;
    std::vector<HistoryPoint> falling;
    for (std::uint64_t i = 0; i <= 60; ++i) {
        swinging.push_back(level_at(i, 100 * mib + (i * 7 % 10) * 10 * mib));
        falling.push_back(level_at(i, 200 * mib - i * mib));
    }
    CHECK(growth_of(swinging).per_minute == 0);
    CHECK_FALSE(growth_of(swinging).per_step);
    CHECK(*growth_of(falling).per_minute < 0);
}

TEST_CASE("growth is of the last two minutes, and not told too early", "[top]") {
    std::vector<HistoryPoint> points;
    for (std::uint64_t i = 0; i <= 400; ++i) {
        points.push_back(level_at(i, i < 200 ? i * mib : 200 * mib));
        if (i == 3) {
            CHECK_FALSE(growth_of(points).per_minute);
        }
    }
    CHECK(growth_of(points).per_minute == 0);
    CHECK_FALSE(growth_of({}).per_minute);
}

TEST_CASE("tensors are the level where a framework's cache is seen from inside", "[top]") {
    HistoryPoint point = level_at(1, gib);
    CHECK(point.level() == gib);
    point.tensors = mib;
    CHECK(point.level() == mib);
    point.memlab = false;
    point.tensors.reset();
    point.used = 2 * gib;
    CHECK(point.level() == 2 * gib);
}

TEST_CASE("curves are bounded, keep their highest points, and end with the process", "[top]") {
    History history;
    CHECK(history.empty());
    for (std::uint64_t i = 1; i <= 3000; ++i) {
        Observed observed;
        observed.gpus.gpus = {gpu_of(0, 0)};
        observed.statuses = {status_of(1, 0, i == 5 ? gib : mib, 2 * gib)};
        observed.facts[1] = facts_of(1, "a");
        MachineSample sample = join(observed);
        sample.time_ns = i * second;
        history.add(std::move(sample));
    }
    const ProcessSample process = *history.latest().find(1);
    const std::vector<HistoryPoint>& points = history.points(process);
    CHECK(points.size() <= History::most_points);
    CHECK(points.back().time_ns == 3000 * second);
    CHECK(std::any_of(points.begin(), points.end(),
                      [](const HistoryPoint& point) { return point.allocated == gib; }));
    // Another process of the same id has a curve of its own.
    Observed observed;
    observed.statuses = {status_of(1, 0, mib, mib)};
    observed.facts[1] = facts_of(1, "b");
    observed.facts[1].start_ticks = 77;
    MachineSample sample = join(observed);
    sample.time_ns = 4000 * second;
    history.add(std::move(sample));
    CHECK(history.points(*history.latest().find(1)).size() == 1);
    CHECK(history.points(process).empty());
}

}  // namespace
}  // namespace memlab::tools
