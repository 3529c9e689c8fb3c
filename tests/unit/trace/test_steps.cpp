// Growth from step to step: programs with known verdicts, and site figures against a recount.
#include "trace/aggregate/steps.hpp"

#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"

namespace memlab::test {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

/// Bytes of each site at the end of step i.
using Values = std::vector<std::function<std::uint64_t(std::uint64_t)>>;

/// A loop whose sites hold these values at the ends of its steps.
std::vector<StepTotals> run(const Values& sites, std::uint64_t steps) {
    StepStats figures;
    std::vector<std::uint64_t> live(sites.size());
    for (std::uint64_t step = 0; step < steps; ++step) {
        std::uint64_t level = 0;
        for (std::uint32_t site = 0; site < sites.size(); ++site) {
            const std::uint64_t next = sites[site](step);
            // Within the step it may be anything.
            for (const std::uint64_t value : {next + 12345, next}) {
                if (value != live[site]) {
                    if (figures.following()) {
                        figures.before_change(site, live[site]);
                    }
                    live[site] = value;
                }
            }
            level += next;
        }
        figures.end(StepKind::mark, 7, level, true);
    }
    return figures.totals([&](std::uint32_t site) { return live[site]; },
                          [](std::uint32_t) { return std::optional<std::uint32_t>(); });
}

StepTotals verdict_of(const Values& sites, std::uint64_t steps) {
    const std::vector<StepTotals> all = run(sites, steps);
    REQUIRE(all.size() == 1);
    CHECK(all[0].steps == steps);
    return all[0];
}

std::uint64_t noise(std::uint64_t seed, std::uint64_t step, std::uint64_t size) {
    return Random(seed * 1000003 + step).below(size);
}

constexpr std::uint64_t lengths[] = {8, 12, 20, 33, 64, 100, 500, 3000};

}  // namespace

TEST_CASE("steady programs are steady: constant, noisy, with a working set that breathes") {
    for (const std::uint64_t steps : lengths) {
        CAPTURE(steps);
        CHECK(verdict_of({[](auto) { return 5 * mib; }}, steps).verdict == Verdict::steady);
        CHECK(verdict_of({[](auto i) { return i % 2 * mib; }}, steps).verdict == Verdict::steady);
        for (std::uint64_t seed = 1; seed <= 25; ++seed) {
            CAPTURE(seed);
            const StepTotals totals =
                verdict_of({[&](auto i) { return 100 * mib + noise(seed, i, 20 * mib); },
                            [&](auto i) { return noise(seed + 99, i, mib); }},
                           steps);
            CHECK(totals.verdict == Verdict::steady);
            CHECK(totals.growing.empty());
        }
    }
}

TEST_CASE("a leak of one small block a step is found, with its site and its slope") {
    for (const std::uint64_t steps : lengths) {
        CAPTURE(steps);
        const StepTotals alone = verdict_of(
            {[](auto) { return 64 * mib; }, [](auto i) { return 512 * (i + 1); }}, steps);
        CHECK(alone.verdict == Verdict::growing);
        CHECK(alone.trend.bytes_per_step == Approx(512));
        if (steps < 12) {
            continue;  // the sites' first step is not followed
        }
        REQUIRE(alone.growing.size() == 1);
        CHECK(alone.growing[0].site == 1);
        CHECK(alone.growing[0].trend.bytes_per_step == Approx(512));
    }
    for (const std::uint64_t steps : {40, 300, 3000}) {
        CAPTURE(steps);
        // Far below the noise of the rest.
        const StepTotals hidden =
            verdict_of({[](auto i) { return 100 * mib + noise(3, i, 30 * mib); },
                        [](auto i) { return 512 * (i + 1); }},
                       steps);
        CHECK(hidden.verdict == Verdict::growing);
        REQUIRE(hidden.growing.size() == 1);
        CHECK(hidden.growing[0].site == 1);
        // The leak itself is noisy: about every third step.
        std::vector<std::uint64_t> now_and_then;
        std::uint64_t sum = 0;
        for (std::uint64_t i = 0; i < 3000; ++i) {
            sum += noise(5, i, 3) == 0 ? 4096 : 0;
            now_and_then.push_back(sum);
        }
        const StepTotals rare =
            verdict_of({[&](auto i) { return now_and_then[i]; }, [](auto) { return mib; }}, steps);
        CHECK(rare.verdict == Verdict::growing);
        REQUIRE(rare.growing.size() == 1);
        CHECK(rare.growing[0].trend.bytes_per_step > 800);
        CHECK(rare.growing[0].trend.bytes_per_step < 2200);
    }
}

TEST_CASE("what is collected every n steps is a sawtooth, not a leak") {
    for (const std::uint64_t steps : {30, 64, 100, 500, 3000}) {
        for (const std::uint64_t period : {4, 7, 10, 13}) {
            CAPTURE(steps, period);
            const StepTotals totals =
                verdict_of({[&](auto i) { return 10 * mib + i % period * mib; }}, steps);
            CHECK(totals.verdict == Verdict::sawtooth);
            CHECK(totals.growing.empty());
        }
    }
    // A few bytes up and down on gigabytes are of no interest.
    CHECK(verdict_of({[](auto i) { return 4096 * mib + i % 7 * 512; }}, 100).verdict ==
          Verdict::steady);
    // One that does not come down all the way leaks.
    const StepTotals both = verdict_of(
        {[](auto i) { return 10 * mib + i % 7 * mib; }, [](auto i) { return i * mib / 4; }}, 500);
    CHECK(both.verdict == Verdict::growing);
    REQUIRE(both.growing.size() == 1);
    CHECK(both.growing[0].site == 1);
}

TEST_CASE("growth that is over is not a leak") {
    for (const std::uint64_t steps : lengths) {
        CAPTURE(steps);
        for (std::uint64_t eighth = 1; eighth < 8; ++eighth) {
            CAPTURE(eighth);
            const std::uint64_t at = steps * eighth / 8;
            // A cache is filled, at any time.
            CHECK(verdict_of({[&](auto i) { return mib + (i >= at ? 50 * mib : 0); }}, steps)
                      .verdict == Verdict::steady);
        }
        // Growing for a while, then flat.
        CHECK(verdict_of({[&](auto i) { return std::min(i, steps / 2) * mib; }}, steps).verdict ==
              Verdict::steady);
        CHECK(verdict_of({[&](auto i) { return std::min(i, steps / 8) * mib; }}, steps).verdict ==
              Verdict::steady);
        // Shrinking.
        CHECK(verdict_of({[&](auto i) { return (steps - i) * mib; }}, steps).verdict ==
              Verdict::steady);
    }
}

TEST_CASE("what moves from site to site is no growth") {
    const StepTotals totals =
        verdict_of({[](auto i) { return (1000 - i) * mib; }, [](auto i) { return i * mib; }}, 500);
    CHECK(totals.verdict == Verdict::steady);
    CHECK(totals.growing.empty());
}

TEST_CASE("few steps have no verdict") {
    for (std::uint64_t steps = 2; steps < 8; ++steps) {
        CHECK(verdict_of({[](auto i) { return i * mib; }}, steps).verdict ==
              Verdict::too_few_steps);
    }
    CHECK(run({[](auto i) { return i; }}, 1).empty());
}

TEST_CASE("blocks of steps hold what a recount finds") {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        StepBlocks<16> blocks;
        std::vector<std::uint64_t> all;
        const std::uint64_t runs = 1 + random.below(60);
        for (std::uint64_t run = 0; run < runs; ++run) {
            const std::uint64_t value = random.below(1000);
            const std::uint64_t times = random.below(random.one_in(5) ? 300 : 5);
            blocks.add(value, times);
            all.insert(all.end(), times, value);
        }
        REQUIRE(blocks.steps() == all.size());
        const std::uint64_t per_block = blocks.steps_per_block();
        REQUIRE(blocks.used() == (all.size() + per_block - 1) / per_block);
        CHECK((per_block == 1 || blocks.used() > 8));
        for (std::size_t i = 0; i < blocks.used(); ++i) {
            const auto from = all.begin() + static_cast<std::ptrdiff_t>(i * per_block);
            const auto to = static_cast<std::size_t>(all.end() - from) > per_block
                                ? from + static_cast<std::ptrdiff_t>(per_block)
                                : all.end();
            CHECK(blocks.blocks()[i].min == *std::min_element(from, to));
            CHECK(blocks.blocks()[i].max == *std::max_element(from, to));
        }
        std::uint64_t rises = 0;
        std::uint64_t falls = 0;
        for (std::size_t i = 1; i < all.size(); ++i) {
            rises += all[i] > all[i - 1] ? 1 : 0;
            falls += all[i] < all[i - 1] ? 1 : 0;
        }
        CHECK(blocks.rises() == rises);
        CHECK(blocks.falls() == falls);
    }
}

TEST_CASE("many kinds of steps and many sites stay within bounds") {
    StepStats figures;
    for (int round = 0; round < 20; ++round) {
        for (std::uint32_t path = 0; path < 100; ++path) {
            figures.end(StepKind::scope, path, path, path % 2 == 0);
            for (std::uint32_t site = 0; site < (round == 3 ? StepStats::max_sites + 50 : 5);
                 ++site) {
                if (figures.following()) {
                    figures.before_change(site, 1);
                }
            }
        }
    }
    const std::vector<StepTotals> all =
        figures.totals([](std::uint32_t) { return 1; },
                       [](std::uint32_t) { return std::optional<std::uint32_t>(); });
    CHECK(all.size() == 50);
    std::size_t followed = 0;
    for (const StepTotals& each : all) {
        CHECK(each.path % 2 == 0);
        CHECK(each.steps == 20);
        CHECK(each.verdict == Verdict::steady);
        followed += each.by_site ? 1 : 0;
        CHECK(each.sites_left_out == (each.by_site ? 50U : 0U));
    }
    CHECK(followed == StepStats::max_followed);
}

TEST_CASE("kinds with few steps give their place to later ones with many") {
    StepStats figures;
    for (std::uint32_t path = 0; path < StepStats::max_kinds; ++path) {
        for (int step = 0; step < 3; ++step) {
            figures.end(StepKind::scope, path, mib, true);
        }
    }
    CHECK(figures.kinds_left_out() == 0);
    for (std::uint64_t step = 0; step < 50; ++step) {
        figures.end(StepKind::mark, 7, step * mib, true);
    }
    CHECK(figures.kinds_left_out() == 1);
    CHECK(figures.kind_count() == StepStats::max_kinds);
    const std::vector<StepTotals> all =
        figures.totals([](std::uint32_t) { return 1; },
                       [](std::uint32_t) { return std::optional<std::uint32_t>(); });
    REQUIRE(all.back().kind == StepKind::mark);
    CHECK(all.back().steps == 50);
    CHECK(all.back().verdict == Verdict::growing);
}

TEST_CASE("kinds that are over give their place to one with many more steps, whatever they had") {
    StepStats figures;
    for (std::uint32_t path = 0; path < StepStats::max_kinds; ++path) {
        for (int step = 0; step < 10; ++step) {
            figures.end(StepKind::scope, path, mib, true);
        }
    }
    for (std::uint64_t step = 0; step < 200; ++step) {
        figures.end(StepKind::mark, 7, step * mib, true);
    }
    const std::vector<StepTotals> all =
        figures.totals([](std::uint32_t) { return 1; },
                       [](std::uint32_t) { return std::optional<std::uint32_t>(); });
    REQUIRE(all.back().kind == StepKind::mark);
    CHECK(all.back().steps >= 170);
    CHECK(all.back().verdict == Verdict::growing);
    CHECK(figures.kinds_left_out() != 0);
}

TEST_CASE("kinds of steps that take turns keep their places; what was left out is counted") {
    StepStats figures;
    constexpr std::uint32_t kinds = StepStats::max_kinds + 10;
    for (int round = 0; round < 20; ++round) {
        for (std::uint32_t path = 0; path < kinds; ++path) {
            figures.end(StepKind::scope, path, mib, true);
        }
    }
    CHECK(figures.kinds_left_out() == 10);
    for (const StepTotals& each :
         figures.totals([](std::uint32_t) { return 1; },
                        [](std::uint32_t) { return std::optional<std::uint32_t>(); })) {
        CHECK(each.steps == 20);
    }
}

TEST_CASE("names beyond those that can be remembered count as left out") {
    StepStats figures;
    for (std::uint32_t path = 0; path < StepStats::max_candidates + 5; ++path) {
        figures.end(StepKind::scope, path, mib, true);
    }
    CHECK(figures.kinds_left_out() == 5);
}

}  // namespace memlab::test
