// Random programs on machines with several devices (random_machine.hpp). A failure prints the seed:
//   MEMLAB_TEST_SEED=<seed> MEMLAB_TEST_RUNS=1 model_check_random_machine "random machines*"
//   model_check_random_machine "[full]"   10 million steps
#include <cstdint>
#include <cstdio>
#include <string>

#include "tests/catch.hpp"
#include "tests/model_check/random_machine.hpp"

namespace memlab::model_check {

namespace {

using allocator::testing::setting;
using allocator::testing::sound;

constexpr std::uint64_t steps = 2500;

void run_all(std::uint64_t first, std::uint64_t runs) {
    Fibers fibers;
    RandomMachine::Counts sum;
    for (std::uint64_t seed = first; seed < first + runs; ++seed) {
        CAPTURE(seed);
        RandomMachine machine(seed, fibers);
        const std::string problem = machine.run(steps);
        REQUIRE(problem == sound);
        sum.steps += machine.counts().steps;
        sum.calls += machine.counts().calls;
        sum.waited += machine.counts().waited;
        sum.work += machine.counts().work;
        sum.failures += machine.counts().failures;
        sum.checks += machine.counts().checks;
        sum.while_arriving += machine.counts().while_arriving;
        sum.while_leaving += machine.counts().while_leaving;
        sum.promised += machine.counts().promised;
    }
    std::printf(
        "seeds %llu to %llu: %llu steps, %llu calls of pools, of which %llu waited while "
        "others went on and %llu were refused, %llu items of work, %llu checks; %llu calls while "
        "memory arrived, %llu while it left, %llu allocations of what was free\n",
        static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + runs - 1),
        static_cast<unsigned long long>(sum.steps), static_cast<unsigned long long>(sum.calls),
        static_cast<unsigned long long>(sum.waited), static_cast<unsigned long long>(sum.failures),
        static_cast<unsigned long long>(sum.work), static_cast<unsigned long long>(sum.checks),
        static_cast<unsigned long long>(sum.while_arriving),
        static_cast<unsigned long long>(sum.while_leaving),
        static_cast<unsigned long long>(sum.promised));
    CHECK(sum.waited > sum.steps / 200);
    CHECK(sum.work > sum.steps / 20);
    CHECK(sum.while_arriving > sum.steps / 2000);
    CHECK(sum.while_leaving > sum.steps / 2000);
    CHECK(sum.promised > sum.steps / 200);
}

}  // namespace

TEST_CASE("random machines find nothing wrong") {
#ifdef NDEBUG
    constexpr std::uint64_t usual = 300;
#else
    constexpr std::uint64_t usual = 40;
#endif
    run_all(setting("MEMLAB_TEST_SEED", 1), setting("MEMLAB_TEST_RUNS", usual));
}

TEST_CASE("ten million random steps find nothing wrong", "[.full]") {
    run_all(setting("MEMLAB_TEST_SEED", 1'000'000), 10'000'000 / steps);
}

TEST_CASE("random machines find what is planted") {
    struct Plant {
        Planted planted;
        const char* found;  ///< as one of these words
    };
    for (const Plant plant :
         {Plant{Planted::no_fence, "owner left"}, Plant{Planted::early_fence, "owner left"},
          Plant{Planted::endless_epoch, "owner left"},
          Plant{Planted::unordered_device, "owner left"},
          Plant{Planted::hasty_give_back, "not there"}, Plant{Planted::hasty_host, "it promises"},
          Plant{Planted::release_forgotten, "fences were not released"},
          Plant{Planted::invented_event, "the statistics differ"}}) {
        CAPTURE(plant.found);
        Fibers fibers;
        int noticed = 0;
        int as_expected = 0;
        for (std::uint64_t seed = 1; seed <= 120; ++seed) {
            RandomMachine machine(seed, fibers, plant.planted);
            const std::string problem = machine.run(steps);
            noticed += problem.empty() ? 0 : 1;
            as_expected += problem.find(plant.found) != std::string::npos ? 1 : 0;
        }
        CAPTURE(noticed);
        CHECK(as_expected >= 3);
    }
}

TEST_CASE("the same seed gives the same run") {
    Fibers fibers;
    RandomMachine::Counts counts[2];
    for (auto& each : counts) {
        RandomMachine machine(11, fibers);
        REQUIRE(machine.run(steps) == sound);
        each = machine.counts();
    }
    CHECK(counts[0].calls == counts[1].calls);
    CHECK(counts[0].waited == counts[1].waited);
    CHECK(counts[0].work == counts[1].work);
    CHECK(counts[0].failures == counts[1].failures);
}

}  // namespace memlab::model_check
