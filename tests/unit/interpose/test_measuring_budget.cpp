// What the ledger may spend on measuring.
#include "interpose/ledger/measuring_budget.hpp"

#include "tests/catch.hpp"

using memlab::interpose::MeasuringBudget;
using memlab::trace::LedgerKind;

namespace {

constexpr std::uint64_t second = 1'000'000'000;
constexpr std::uint64_t start = 77 * second;
constexpr std::uint64_t step = second / 100'000;
constexpr std::uint64_t cost = 5 * step;

// What a program spends in `run_ns` of the clock, `busy_share` percent of which are its processor
// time, if it could measure in each step.
std::uint64_t spent_in(std::uint64_t run_ns, unsigned busy_share, LedgerKind kind) {
    MeasuringBudget budget(start);
    std::uint64_t spent = 0;
    for (std::uint64_t now = start; now < start + run_ns; now += step) {
        const auto processor = [&] { return (now - start) * busy_share / 100; };
        if (budget.allows(kind, now, processor)) {
            budget.spend(cost);
            spent += cost;
        }
    }
    return spent;
}

}  // namespace

TEST_CASE("measuring takes 0.2 % of the run, a quarter of it for events") {
    const std::uint64_t run = 20 * second;
    CHECK(spent_in(run, 100, LedgerKind::module) >= run / 500 - 2 * cost);
    CHECK(spent_in(run, 100, LedgerKind::module) <= run / 500 + cost);
    CHECK(spent_in(run, 100, LedgerKind::event) >= run / 2000 - 2 * cost);
    CHECK(spent_in(run, 100, LedgerKind::event) <= run / 2000 + cost);
    // Threads that compute side by side do not add up.
    CHECK(spent_in(run, 800, LedgerKind::module) <= run / 500 + cost);
}

TEST_CASE("a short run may spend what one of two seconds may") {
    CHECK(spent_in(second / 10, 100, LedgerKind::module) == second / 250 + cost);
    CHECK(spent_in(second / 10, 0, LedgerKind::stream) == second / 1000 + cost);
}

TEST_CASE("a program that waits saves nothing up for when it computes") {
    const std::uint64_t run = 40 * second;
    CHECK(spent_in(run, 10, LedgerKind::module) <= run / 10 / 500 + cost);
    CHECK(spent_in(run, 10, LedgerKind::module) >= run / 10 / 500 - 2 * cost);

    MeasuringBudget budget(start);
    std::uint64_t processor_ns = 3 * second;
    const auto processor = [&] { return processor_ns; };
    std::uint64_t now = start + 3 * second;
    while (budget.allows(LedgerKind::event, now, processor)) {
        budget.spend(cost);
    }
    now += 3600 * second;  // in which it waits
    CHECK_FALSE(budget.allows(LedgerKind::event, now, processor));
    now += second / 5;
    processor_ns += second / 5;
    CHECK(budget.allows(LedgerKind::event, now, processor));
}

TEST_CASE("the processor time is asked for only where it decides") {
    MeasuringBudget budget(start);
    int asked = 0;
    const auto processor = [&] {
        ++asked;
        return second;
    };
    CHECK(budget.allows(LedgerKind::event, start + 4 * second, processor));
    budget.spend(3 * second / 2000);  // a run of 3 s may
    CHECK(asked == 0);
    CHECK_FALSE(budget.allows(LedgerKind::event, start + 2 * second, processor));
    CHECK(asked == 0);
    CHECK_FALSE(budget.allows(LedgerKind::event, start + 4 * second, processor));
    CHECK(asked == 1);
    // At least two seconds of processor time are missing.
    CHECK_FALSE(budget.allows(LedgerKind::event, start + 6 * second - 1, processor));
    CHECK(asked == 1);
    CHECK_FALSE(budget.allows(LedgerKind::event, start + 6 * second, processor));
    CHECK(asked == 2);
}
