// Independent pieces of work on all processors.
#include "report/parallel.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using memlab::report::for_each_in_parallel;

TEST_CASE("each piece of work is done once") {
    for (const std::size_t count : {0, 1, 2, 1000}) {
        std::vector<int> done(count, 0);
        for_each_in_parallel(count, [&](std::size_t i) { ++done[i]; });
        CHECK(done == std::vector<int>(count, 1));
    }
}

TEST_CASE("an exception of a piece of work propagates, and what had not begun is left out") {
    std::atomic<std::size_t> done{0};
    const auto work = [&](std::size_t i) {
        if (i == 0) {
            throw std::runtime_error("first");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++done;
    };
    CHECK_THROWS_AS(for_each_in_parallel(1, work), std::runtime_error);
    CHECK_THROWS_AS(for_each_in_parallel(1'000'000, work), std::runtime_error);
    CHECK(done < 1'000'000 - 1);
}
