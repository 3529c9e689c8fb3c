// The walk cache: matches by stack pointer and address, epochs, replacement, concurrency.
#include "profiler/unwind/walk_cache.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using memlab::profiler::unwind::Rule;
using memlab::profiler::unwind::WalkCache;

namespace {

const Rule rule(Rule(Rule::Kind::plain).word() | 7U << 6);

// An epoch that no other test uses.
std::uint64_t new_epoch() {
    static std::uint64_t epoch = std::uint64_t{1} << 40;
    return ++epoch;
}

// Addresses from `code` on, so that walks through the same part of the stack can differ.
void walk_through(std::uint64_t epoch, std::uintptr_t first, std::size_t frames,
                  std::uintptr_t code = 0x400000) {
    WalkCache walk(epoch, first);
    for (std::uintptr_t i = 0; i < frames; ++i) {
        walk.append(first + i * 16, code + i, rule);
    }
    walk.commit();
}

// How many of the frames of walk_through() are found.
std::size_t expected(std::uint64_t epoch, std::uintptr_t first, std::size_t frames,
                     std::uintptr_t code = 0x400000) {
    WalkCache walk(epoch, first);
    std::size_t found = 0;
    for (std::uintptr_t i = 0; i < frames; ++i) {
        found += walk.rule_at(first + i * 16, code + i).word() == rule.word() ? 1 : 0;
    }
    return found;
}

}  // namespace

TEST_CASE("a rule is found by stack pointer and address of an earlier walk") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 3);
    WalkCache walk(epoch, 0x1000);
    CHECK_FALSE(walk.rule_at(0x0ff0, 0x400000).is_plain());
    CHECK_FALSE(walk.rule_at(0x1000, 0x400001).is_plain());
    CHECK(walk.rule_at(0x1000, 0x400000).word() == rule.word());
    CHECK_FALSE(walk.rule_at(0x1008, 0x400001).is_plain());
    CHECK(walk.rule_at(0x1020, 0x400002).word() == rule.word());
    CHECK_FALSE(walk.rule_at(0x1030, 0x400003).is_plain());
    CHECK_FALSE(walk.rule_at(UINTPTR_MAX, 0).is_plain());
}

TEST_CASE("walks of another epoch do not match, those of epoch 0 are not inserted") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 3);
    CHECK(expected(new_epoch(), 0x1000, 3) == 0);
    walk_through(0, 0x1000, 3);
    CHECK(expected(0, 0x1000, 3) == 0);
    CHECK(expected(epoch, 0x1000, 3) == 3);
}

TEST_CASE("a walk that is not committed changes nothing") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 3);
    {
        WalkCache walk(epoch, 0x1000);
        walk.append(0x9000, 0x500000, rule);
    }
    CHECK(expected(epoch, 0x1000, 3) == 3);
}

TEST_CASE("a nested walk runs without the cache and does not disturb the outer one") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 3);
    WalkCache outer(epoch, 0x1000);
    CHECK(outer.rule_at(0x1000, 0x400000).is_plain());
    walk_through(epoch, 0x5000, 100);
    CHECK(expected(epoch, 0x5000, 100) == 0);
    CHECK(outer.rule_at(0x1010, 0x400001).is_plain());
}

TEST_CASE("a walk may match an earlier one in part") {
    const std::uint64_t epoch = new_epoch();
    const Rule end(Rule::Kind::end);
    const auto count_from = [&](std::uintptr_t sp, std::uintptr_t address, Rule last) {
        WalkCache walk(epoch, 0x1000);
        const WalkCache::Frame* frame = walk.match(sp, address);
        std::size_t count = 0;
        for (; frame != nullptr && frame->sp != UINTPTR_MAX; ++frame) {
            ++count;
            if (frame[1].sp == UINTPTR_MAX) {
                CHECK(frame->rule.word() == last.word());
            }
        }
        return count;
    };
    {
        WalkCache walk(epoch, 0x1000);
        CHECK(walk.match(0x1000, 0x400000) == nullptr);
        for (std::uintptr_t i = 0; i < 10; ++i) {
            walk.append(0x1000 + i * 16, 0x400000 + i, i == 9 ? end : rule);
        }
        walk.commit();
    }
    CHECK(count_from(0x1000, 0x400000, end) == 10);
    for (int round = 0; round < 2; ++round) {  // the same: not inserted again
        WalkCache walk(epoch, 0x1000);
        const WalkCache::Frame* frame = walk.match(0x1000, 0x400000);
        REQUIRE(frame != nullptr);
        walk.append_matched(frame + 9);
        CHECK(walk.match(0x1090, 0x400009) == frame + 9);
        walk.append_matched(frame + 10);
        walk.commit();
    }
    CHECK(count_from(0x1000, 0x400000, end) == 10);
    {  // diverges in the middle, and converges
        WalkCache walk(epoch, 0x1000);
        walk.append_matched(walk.match(0x1000, 0x400000) + 3);
        walk.append(0x1030, 0x600000, rule);
        CHECK(walk.match(0x1038, 0x600001) == nullptr);
        walk.append(0x1038, 0x600001, rule);
        const WalkCache::Frame* frame = walk.match(0x1040, 0x400004);
        REQUIRE(frame != nullptr);
        walk.append_matched(frame + 6);
        walk.commit();
    }
    CHECK(count_from(0x1000, 0x400000, end) == 11);
    CHECK(count_from(0x1030, 0x600000, end) == 8);
    CHECK(count_from(0x1040, 0x400004, end) == 6);
    {  // the first one again, which is still cached
        WalkCache walk(epoch, 0x1000);
        walk.append_matched(walk.match(0x1000, 0x400000) + 3);
        const WalkCache::Frame* frame = walk.match(0x1030, 0x400003);
        REQUIRE(frame != nullptr);
        walk.append_matched(frame + 7);
        walk.commit();
    }
    CHECK(count_from(0x1000, 0x400000, end) == 10);
    {  // ends earlier: not inserted
        WalkCache walk(epoch, 0x1000);
        walk.append_matched(walk.match(0x1000, 0x400000) + 2);
        walk.commit();
    }
    CHECK(count_from(0x1000, 0x400000, end) == 10);
}

TEST_CASE("a very deep walk that repeats does not change the cache") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 5000);
    const std::size_t kept = expected(epoch, 0x1000, 5000);
    walk_through(epoch, 0x1000, 5000);
    CHECK(expected(epoch, 0x1000, 5000) == kept);
    walk_through(epoch, 0x1000, 50);
    CHECK(expected(epoch, 0x1000, 5000) == kept);
}

TEST_CASE("of a very deep stack the inner part is cached") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 5000);
    const std::size_t kept = expected(epoch, 0x1000, 5000);
    CHECK(kept > 80);
    CHECK(kept < 200);
}

TEST_CASE("matches the walk with the same initial sp and the last walk") {
    const std::uint64_t epoch = new_epoch();
    walk_through(epoch, 0x1000, 20);
    walk_through(epoch, 0x0f00, 40, 0x500000);  // diverges above 0x1000
    CHECK(expected(epoch, 0x1000, 20) == 20);
    CHECK(expected(epoch, 0x0f00, 40, 0x500000) == 40);
    // Another initial sp: the outer part of the last walk.
    CHECK(expected(epoch, 0x1010, 20, 0x500000 + 0x11) == 20);
}

namespace {

// Walks `frames` frames, the i-th at address(i); returns how many are not cached.
template <class Address>
std::size_t unknown_frames(std::uint64_t epoch, std::uintptr_t first, std::size_t frames,
                           const Address& address) {
    WalkCache walk(epoch, first);
    std::size_t count = 0;
    for (std::uintptr_t i = 0; i < frames; ++i) {
        const std::uintptr_t sp = first + i * 16;
        if (const WalkCache::Frame* frame = walk.match(sp, address(i))) {
            CHECK(frame->rule.word() == rule.word());
            walk.append_matched(frame + 1);
        } else {
            walk.append(sp, address(i), rule);
            ++count;
        }
    }
    walk.commit();
    return count;
}

}  // namespace

TEST_CASE("several paths from one stack pointer are all cached") {
    const std::uint64_t epoch = new_epoch();
    constexpr std::uintptr_t ways = 4;
    constexpr std::uintptr_t frames = 20;
    const auto unknown = [&](std::uintptr_t way) {  // five common frames, then the path's own
        return unknown_frames(epoch, 0x2000, frames, [way](std::uintptr_t i) {
            return 0x400000 + i + (i < 5 ? 0 : way << 12);
        });
    };
    for (std::uintptr_t way = 0; way < ways; ++way) {
        CHECK(unknown(way) == (way == 0 ? frames : frames - 5));
    }
    for (std::uintptr_t i = 0; i < 10 * ways; ++i) {
        CHECK(unknown(i * 7 % ways) == 0);
    }
}

TEST_CASE("more paths from one stack pointer than ways: some match, none wrongly") {
    const std::uint64_t epoch = new_epoch();
    constexpr std::uintptr_t ways = 16;
    constexpr std::uintptr_t frames = 20;
    std::size_t known = 0;
    for (std::uintptr_t i = 0; i < 20 * ways; ++i) {
        const std::uintptr_t way = i % ways;
        known += unknown_frames(epoch, 0x4000, frames,
                                [way](std::uintptr_t frame) {
                                    return 0x400000 + frame + (frame < 5 ? 0 : way << 12);
                                }) == 0
                     ? 1
                     : 0;
    }
    CHECK(known > ways);
}

TEST_CASE("a walk that alternates between two cached walks") {
    const std::uint64_t epoch = new_epoch();
    const std::size_t frames = GENERATE(20, 94, 95, 96, 300);
    const std::uintptr_t first = 0x100000 + frames * 0x10000;
    const auto unknown = [&](std::uintptr_t odd, std::uintptr_t even) {
        return unknown_frames(epoch, first, frames, [&](std::uintptr_t i) {
            return 0x400000 + i + (i % 2 == 0 ? even : odd);
        });
    };
    const std::size_t kept = std::min<std::size_t>(frames, 95);
    CHECK(unknown(0, 0) == frames);
    CHECK(unknown(0x5000, 0x5000) == frames);
    for (int i = 0; i < 3; ++i) {
        CHECK(unknown(0, 0x5000) == frames - kept);
        CHECK(unknown(0x5000, 0) == frames - kept);
        CHECK(unknown(0, 0) == frames - kept);
    }
}

TEST_CASE("stale frames past the end of a shorter walk do not match") {
    const std::uint64_t before = new_epoch();
    for (int i = 0; i < 4; ++i) {  // all ways of the set
        walk_through(before, 0x3000, 30, 0x400000 + static_cast<std::uintptr_t>(i) * 0x1000);
    }
    const std::uint64_t epoch = new_epoch();
    for (int i = 0; i < 4; ++i) {
        walk_through(epoch, 0x3000, 5, 0x700000 + static_cast<std::uintptr_t>(i) * 0x1000);
    }
    for (int i = 0; i < 4; ++i) {
        const auto code = 0x400000 + static_cast<std::uintptr_t>(i) * 0x1000;
        WalkCache walk(epoch, 0x3000);
        for (std::uintptr_t frame = 0; frame < 30; ++frame) {
            CHECK(walk.match(0x3000 + frame * 16, code + frame) == nullptr);
            walk.append(0x3000 + frame * 16, code + frame, rule);
        }
    }
}

TEST_CASE("many paths in turn, each repeated") {
    const std::uint64_t epoch = new_epoch();
    constexpr std::uintptr_t ways = 40;
    const auto begin = [](std::uintptr_t way) { return 0x7ffe00001000 + way * 48; };
    for (int round = 0; round < 2; ++round) {
        for (std::uintptr_t way = 0; way < ways; ++way) {
            walk_through(epoch, begin(way), 30, 0x400000 + way * 0x1000);
        }
    }
    std::size_t found = 0;
    for (std::uintptr_t way = 0; way < ways; ++way) {
        found += expected(epoch, begin(way), 30, 0x400000 + way * 0x1000);
    }
    CHECK(found >= ways * 30 * 3 / 4);  // some initial stack pointers share a set
}

TEST_CASE("concurrent walks, in one slot or several") {
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
