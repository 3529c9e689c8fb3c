// What a walk expects of the last one: rules, where it found them, and for as long as they hold.
#include "profiler/unwind/last_walk.hpp"

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using memlab::profiler::unwind::LastWalk;
using memlab::profiler::unwind::Rule;

namespace {

const Rule rule(Rule(Rule::Kind::plain).word() | 7U << 6);

// Epochs that no other test of this process has.
std::uint64_t new_epoch() {
    static std::uint64_t epoch = std::uint64_t{1} << 40;
    return ++epoch;
}

void walk_through(std::uint64_t epoch, std::uintptr_t first, std::size_t frames) {
    LastWalk walk(epoch);
    for (std::uintptr_t i = 0; i < frames; ++i) {
        walk.went(first + i * 16, 0x400000 + i, rule);
    }
    walk.keep();
}

// How many of the frames that walk_through() leaves are expected.
std::size_t expected(std::uint64_t epoch, std::uintptr_t first, std::size_t frames) {
    LastWalk walk(epoch);
    std::size_t found = 0;
    for (std::uintptr_t i = 0; i < frames; ++i) {
        found += walk.rule_at(first + i * 16, 0x400000 + i).word() == rule.word() ? 1 : 0;
    }
    return found;
}

}  // namespace

TEST_CASE("a rule is expected where the last walk was: at that address with that stack pointer") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 3);
    LastWalk walk(epoch);
    CHECK_FALSE(walk.rule_at(0x0ff0, 0x400000).is_plain());
    CHECK_FALSE(walk.rule_at(0x1000, 0x400001).is_plain());
    CHECK(walk.rule_at(0x1000, 0x400000).word() == rule.word());
    CHECK_FALSE(walk.rule_at(0x1008, 0x400001).is_plain());
    CHECK(walk.rule_at(0x1020, 0x400002).word() == rule.word());
    CHECK_FALSE(walk.rule_at(0x1030, 0x400003).is_plain());
    CHECK_FALSE(walk.rule_at(UINTPTR_MAX, 0).is_plain());
}

TEST_CASE("nothing is expected of another epoch, and nothing kept of none") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 3);
    CHECK(expected(new_epoch(), 0x1000, 3) == 0);
    walk_through(0, 0x1000, 3);
    CHECK(expected(0, 0x1000, 3) == 0);
    CHECK(expected(epoch, 0x1000, 3) == 3);
}

TEST_CASE("a walk that is not kept changes nothing") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 3);
    {
        LastWalk walk(epoch);
        walk.went(0x9000, 0x500000, rule);
    }
    CHECK(expected(epoch, 0x1000, 3) == 3);
}

TEST_CASE("a walk within a walk expects nothing and disturbs nothing") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 3);
    LastWalk outer(epoch);
    CHECK(outer.rule_at(0x1000, 0x400000).is_plain());
    walk_through(epoch, 0x5000, 100);
    CHECK(expected(epoch, 0x5000, 100) == 0);
    CHECK(outer.rule_at(0x1010, 0x400001).is_plain());
}

TEST_CASE("of a very deep stack the inner part is kept") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 5000);
    const std::size_t kept = expected(epoch, 0x1000, 5000);
    CHECK(kept > 100);
    CHECK(kept < 200);
}

TEST_CASE("threads that walk at once, in one place or in many") {
    const std::uint64_t epoch = new_epoch();
    std::vector<std::thread> threads;
    threads.reserve(8);
    for (std::uintptr_t t = 1; t <= 8; ++t) {
        threads.emplace_back([epoch, t] {
            for (int i = 0; i < 2000; ++i) {
                walk_through(epoch, t << 20, 20);
                expected(epoch, t << 20, 20);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    walk_through(epoch, 0x1000, 3);
    CHECK(expected(epoch, 0x1000, 3) == 3);
}
