// Random programs on small devices, with all checks (random_program.hpp). A failure prints the
// seed:
//   MEMLAB_TEST_SEED=<seed> MEMLAB_TEST_RUNS=1 unit_allocator "random programs*"
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/allocator/random_program.hpp"
#include "tests/unit/allocator/replay.hpp"

namespace memlab::allocator::testing {

TEST_CASE("random programs find nothing wrong") {
    const std::uint64_t first = setting("MEMLAB_TEST_SEED", 1);
    const std::uint64_t runs = setting("MEMLAB_TEST_RUNS", 150);
    for (std::uint64_t seed = first; seed < first + runs; ++seed) {
        CAPTURE(seed);
        Program program(seed);
        const std::string problem = program.run(600);
        REQUIRE(problem == sound);
    }
}

TEST_CASE("what the observer was told is enough to do it all again") {
    const std::uint64_t first = setting("MEMLAB_TEST_SEED", 1);
    const std::uint64_t runs = setting("MEMLAB_TEST_RUNS", 200);
    for (std::uint64_t seed = first; seed < first + runs; ++seed) {
        CAPTURE(seed);
        Program program(seed);
        REQUIRE(program.run(400) == sound);
        const std::string problem =
            problem_of_replay(program.options(), program.events(), program.total());
        REQUIRE(problem == sound);
    }
}

TEST_CASE("a replay notices what is not as it was") {
    Program program(7);
    REQUIRE(program.run(400) == sound);
    const std::vector<Seen> events = program.events();
    int noticed = 0;
    int tried = 0;
    for (std::size_t i = 0; i < events.size(); i += 7) {
        std::vector<Seen> changed = events;
        switch (changed[i].what) {
            case Seen::What::sync:
            case Seen::What::tick:
            case Seen::What::alloc_retry:
            case Seen::What::empty_cache:
                continue;  // may have had no effect
            default:
                break;
        }
        ++tried;
        if (changed[i].what == Seen::What::alloc) {
            changed[i].address += 512;
        } else {
            changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
        }
        noticed += problem_of_replay(program.options(), changed, program.total()).empty() ? 0 : 1;
    }
    CHECK(tried > 20);
    CHECK(noticed == tried);
}

TEST_CASE("the same program gets the same addresses, event by event") {
    for (std::uint64_t seed = 1; seed < 10; ++seed) {
        CAPTURE(seed);
        std::vector<Seen> events[2];
        for (auto& seen : events) {
            Random random(seed);
            Fixture fixture(200 * mib, random_options(random));
            std::vector<Address> live;
            for (int i = 0; i < 500; ++i) {
                if (live.empty() || !random.one_in(3)) {
                    const AllocResult result = fixture.pool.allocate(random_size(random), 0);
                    if (result.status.ok()) {
                        live.push_back(result.block.address);
                    }
                } else {
                    const std::size_t index = random.below(live.size());
                    fixture.backend.submit();
                    fixture.pool.free(live[index], 0);
                    live[index] = live.back();
                    live.pop_back();
                }
            }
            seen = fixture.observer.take_events();
        }
        REQUIRE(events[0].size() > 500);
        REQUIRE(events[0] == events[1]);
    }
}

}  // namespace memlab::allocator::testing
