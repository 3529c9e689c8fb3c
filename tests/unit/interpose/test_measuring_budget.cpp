// What the ledger may spend on measuring.
#include "interpose/ledger/measuring_budget.hpp"

#include <optional>

#include "tests/catch.hpp"

using memlab::interpose::MeasuringBudget;
using memlab::trace::LedgerKind;

namespace {

constexpr std::uint64_t second = 1'000'000'000;
constexpr std::uint64_t start = 77 * second;
constexpr std::uint64_t step = second / 100'000;
constexpr std::uint64_t cost = 5 * step;

// As a program that has made more calls than are measured whatever the share, which took no time.
void pass_first_calls(MeasuringBudget& budget, LedgerKind kind) {
    for (std::uint64_t i = 0; i < MeasuringBudget::first_calls; ++i) {
        (void)budget.allows(kind, start, [] { return std::uint64_t{0}; });
    }
}

// What a program spends in `run_ns` of the clock, `busy_share` percent of which are its processor
// time, if it could measure in each step. `beside`: a kind of which there are more calls. Of
// neither the first calls.
std::uint64_t spent_in(std::uint64_t run_ns, unsigned busy_share, LedgerKind kind,
                       std::optional<LedgerKind> beside = {}) {
    MeasuringBudget budget(start);
    pass_first_calls(budget, kind);
    if (beside) {
        pass_first_calls(budget, *beside);
    }
    std::uint64_t spent = 0;
    for (std::uint64_t now = start; now < start + run_ns; now += step) {
        const auto processor = [&] { return (now - start) * busy_share / 100; };
        for (int i = 0; beside && i < 2; ++i) {
            (void)budget.allows(*beside, now, processor);
        }
        if (budget.allows(kind, now, processor)) {
            budget.spend(kind, cost);
            spent += cost;
        }
    }
    return spent;
}

}  // namespace

TEST_CASE("measuring takes 1 % of the first ten seconds and 0.2 % of what follows") {
    const std::uint64_t run = 20 * second;
    const std::uint64_t allowed = 10 * second / 100 + 10 * second / 500;
    for (const LedgerKind other : {LedgerKind::module, LedgerKind::event}) {
        // Beside a kind of more calls, which measures nothing here.
        CHECK(spent_in(run, 100, other, LedgerKind::stream) >= allowed - 2 * cost);
        CHECK(spent_in(run, 100, other, LedgerKind::stream) <= allowed + cost);
        // Threads that compute side by side do not add up.
        CHECK(spent_in(run, 800, other, LedgerKind::stream) <= allowed + cost);
    }
    CHECK(spent_in(10 * second, 100, LedgerKind::module, LedgerKind::stream) >=
          10 * second / 100 - 2 * cost);
}

TEST_CASE("the kind of most calls takes a quarter of that") {
    // 25 ms are a quarter of what ten seconds may spend, and 5 ms of ten later ones.
    const std::uint64_t allowed = (10 * second / 100 + 10 * second / 500) / 4;
    CHECK(spent_in(20 * second, 100, LedgerKind::event) >= allowed - 2 * cost);
    CHECK(spent_in(20 * second, 100, LedgerKind::event) <= allowed + cost);
}

TEST_CASE("a rare kind is measured when a frequent one has spent its part") {
    MeasuringBudget budget(start);
    pass_first_calls(budget, LedgerKind::stream);
    pass_first_calls(budget, LedgerKind::module);
    const auto processor = [] { return std::uint64_t{0}; };
    const std::uint64_t now = start + second;
    int streams = 0;
    for (int i = 0; i < 10'000; ++i) {
        if (budget.allows(LedgerKind::stream, now, processor)) {
            budget.spend(LedgerKind::stream, cost);
            ++streams;
        }
    }
    CHECK(streams < 10'000);
    CHECK_FALSE(budget.allows(LedgerKind::stream, now, processor));
    for (int i = 0; i < 100; ++i) {
        CHECK(budget.allows(LedgerKind::module, now, processor));
        budget.spend(LedgerKind::module, cost);
    }
}

TEST_CASE("the first thousand calls of each kind are measured whatever was used up") {
    MeasuringBudget budget(start);
    budget.spend(LedgerKind::context, 10 * second);
    const auto processor = [] { return std::uint64_t{0}; };
    for (const LedgerKind kind : {LedgerKind::stream, LedgerKind::launch, LedgerKind::graph}) {
        for (std::uint64_t i = 0; i < MeasuringBudget::first_calls; ++i) {
            CHECK(budget.allows(kind, start, processor));
            budget.spend(kind, 20'000);
        }
        CHECK_FALSE(budget.allows(kind, start, processor));
    }
}

TEST_CASE("the first calls have a limit of time, too") {
    MeasuringBudget budget(start);
    budget.spend(LedgerKind::context, 10 * second);
    const auto processor = [] { return std::uint64_t{0}; };
    constexpr std::uint64_t beside_a_kernel = 190'000;
    std::uint64_t calls = 0;
    while (budget.allows(LedgerKind::event, start, processor)) {
        budget.spend(LedgerKind::event, beside_a_kernel);
        ++calls;
    }
    CHECK(calls == MeasuringBudget::first_calls_ns / beside_a_kernel + 1);
    CHECK(budget.allows(LedgerKind::stream, start, processor));  // has its own
}

TEST_CASE("a short run may spend what one of two seconds may") {
    CHECK(spent_in(second / 10, 100, LedgerKind::module, LedgerKind::event) == second / 50 + cost);
    CHECK(spent_in(second / 10, 0, LedgerKind::stream) == second / 200 + cost);
}

TEST_CASE("a program that waits saves nothing up for when it computes") {
    const std::uint64_t run = 40 * second;
    CHECK(spent_in(run, 10, LedgerKind::module, LedgerKind::event) <= run / 10 / 100 + cost);
    CHECK(spent_in(run, 10, LedgerKind::module, LedgerKind::event) >= run / 10 / 100 - 2 * cost);

    MeasuringBudget budget(start);
    pass_first_calls(budget, LedgerKind::event);
    std::uint64_t processor_ns = 3 * second;
    const auto processor = [&] { return processor_ns; };
    std::uint64_t now = start + 3 * second;
    while (budget.allows(LedgerKind::event, now, processor)) {
        budget.spend(LedgerKind::event, cost);
    }
    now += 3600 * second;  // in which it waits
    CHECK_FALSE(budget.allows(LedgerKind::event, now, processor));
    now += second / 5;
    processor_ns += second / 5;
    CHECK(budget.allows(LedgerKind::event, now, processor));
}

TEST_CASE("the processor time is asked for only where it decides") {
    MeasuringBudget budget(start);
    pass_first_calls(budget, LedgerKind::event);
    int asked = 0;
    const auto processor = [&] {
        ++asked;
        return second;
    };
    CHECK(budget.allows(LedgerKind::event, start + 4 * second, processor));
    budget.spend(LedgerKind::event, 3 * second / 400);  // a run of 3 s may
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
