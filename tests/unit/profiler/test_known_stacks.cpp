// Known stacks: what is recognized is what a walk would find, and what repeats is recognized. (Over
// every sort of frame: tests/unit/unwind/test_walk.cpp.)
#include "profiler/known_stacks.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "profiler/stack_capture.hpp"
#include "profiler/unwind/unloads.hpp"
#include "profiler/unwind/walk.hpp"
#include "tests/catch.hpp"

namespace unwind = memlab::profiler::unwind;
using memlab::profiler::hash_frames;
using memlab::profiler::KnownStacks;
using memlab::profiler::StackHash;
using memlab::profiler::unwind::CapturedStack;

namespace {

struct Recognized {
    std::atomic<int> found{0};
    std::atomic<int> kept{0};
    std::atomic<int> wrong{0};
    std::atomic<int> walked{0};
    std::atomic<int> expected{0};  ///< with its parts
    std::atomic<int> merged{0};
};
Recognized counts;
std::uint64_t parts = 0;  ///< what look() merges a stack with; 0: nothing
std::uint32_t owner = 0;
std::size_t limit = CapturedStack::max_depth;

// One frame of this function is in the walk and not in the known stack, which begins above it.
__attribute__((noinline)) void look() {
    static thread_local CapturedStack walked;
    const std::uint64_t epoch = unwind::unload_epoch();
    KnownStacks known(owner, epoch, __builtin_frame_address(0));
    const KnownStacks::Stack* const found = known.find();
    unwind::walk_stack(walked, limit, {});
    const StackHash hash = hash_frames(walked, epoch);
    ++counts.walked;
    if (found != nullptr) {
        ++counts.found;
        counts.wrong += found->hash == hash ? 0 : 1;
    }
    const std::uint32_t merged = static_cast<std::uint32_t>((hash.check ^ parts) >> 32) | 1U;
    if (found != nullptr && parts != 0) {
        const std::uint32_t id = found->parts == parts ? found->merged : known.find_merged(parts);
        counts.expected += found->parts == parts ? 1 : 0;
        counts.merged += id != 0 ? 1 : 0;
        counts.wrong += id == 0 || id == merged ? 0 : 1;
    }
    if (known.insert(hash, limit - 1, {})) {
        ++counts.kept;
        counts.wrong += known.stack().hash == hash ? 0 : 1;
        if (parts != 0) {
            known.insert_merged(parts, merged);
            counts.wrong += known.stack().merged == merged ? 0 : 1;
        }
    }
    __asm__ volatile("" ::: "memory");
}

void reset() {
    owner = KnownStacks::new_owner();
    limit = CapturedStack::max_depth;
    counts.found = counts.kept = counts.wrong = counts.walked = 0;
    counts.expected = counts.merged = 0;
    parts = 0;
}

__attribute__((noinline)) void look_below(int depth) {
    if (depth == 0) {
        look();
    } else {
        look_below(depth - 1);
    }
    __asm__ volatile("" ::: "memory");
}

// Two callers of the same frame size: only the return address differs.
__attribute__((noinline)) void look_here() {
    look_below(3);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) void look_there() {
    look_below(3);
    __asm__ volatile("" ::: "memory");
}

}  // namespace

TEST_CASE("what repeats is recognized, in whatever order") {
    reset();
    for (int round = 0; round < 4; ++round) {
        for (int depth = 0; depth < 10; ++depth) {
            look_below((round + depth * 3) % 10);
            look_here();
            look_there();
        }
    }
    CHECK(counts.wrong == 0);
    CHECK(counts.kept == counts.walked);
    CHECK(counts.found >= counts.walked - 12);  // each of twelve stacks was new once
    SECTION("an owner does not see another one's") {
        const int found = counts.found;
        owner = KnownStacks::new_owner();
        look_here();
        CHECK(counts.found == found);
        CHECK(counts.wrong == 0);
    }
}

TEST_CASE("of two stacks that differ by a return address each is itself") {
    reset();
    for (int i = 0; i < 6; ++i) {
        look_here();
        look_there();
        look_there();
    }
    CHECK(counts.wrong == 0);
    CHECK(counts.found >= 16 - 2);
}

TEST_CASE("a stack is kept with each of the parts that it was merged with") {
    reset();
    constexpr int rounds = 30;
    for (int round = 0; round < rounds; ++round) {
        for (const std::uint64_t each : {7U, 8U, 7U, 9U, 10U, 8U, 9U, 9U}) {
            parts = each;
            look_below(2);
            look_below(3);
        }
    }
    CHECK(counts.wrong == 0);
    CHECK(counts.found == rounds * 16 - 2);
    CHECK(counts.merged == rounds * 16 - 2 * 4);
    // What comes next depends on the parts of the three before, which are different each time.
    CHECK(counts.expected > (rounds - 3) * 16);
}

TEST_CASE("a stack whose parts never repeat costs no more and more") {
    reset();
    constexpr int times = 20000;
    constexpr int again = 100;
    std::vector<std::uint64_t> all(times);
    std::iota(all.begin(), all.end(), 1);
    all.resize(times + again, 1);
    for (const std::uint64_t each : all) {
        parts = each;
        look_here();
    }
    CHECK(counts.wrong == 0);
    CHECK(counts.found == times + again - 1);
    CHECK(counts.merged < again);
    CHECK(counts.merged > again - 10);
}

TEST_CASE("many stacks with many parts each are recognized anyway") {
    std::thread([] {
        reset();
        constexpr int depths = 60;
        constexpr int rounds = 40;
        for (int round = 0; round < rounds; ++round) {
            for (int depth = 0; depth < depths; ++depth) {
                parts = 1 + static_cast<std::uint64_t>(round % 20);
                look_below(depth);
            }
        }
        CHECK(counts.wrong == 0);
        CHECK(counts.found > (rounds - 1) * depths * 3 / 4);
    }).join();
}

TEST_CASE("a stack deeper than the limit is recognized by what is within it") {
    reset();
    limit = 5;
    for (int i = 0; i < 3; ++i) {
        look_below(30);
        look_below(31);
    }
    CHECK(counts.wrong == 0);
    CHECK(counts.kept == 6);
    CHECK(counts.found == 4);
}

TEST_CASE("after many stacks that never came again, what repeats is recognized soon") {
    std::thread([] {
        reset();
        constexpr int new_ones = 20000;
        for (int i = 0; i < new_ones; ++i) {
            owner = KnownStacks::new_owner();
            look_here();
        }
        CHECK(counts.found == 0);
        CHECK(counts.kept > 500);
        CHECK(counts.kept < 2000);  // most are not worth it
        constexpr int repeated = 400;
        for (int i = 0; i < repeated; ++i) {
            look_here();
        }
        CHECK(counts.found > repeated / 2);
        CHECK(counts.wrong == 0);
    }).join();
}

TEST_CASE("nothing is recognized while an object is being unloaded, or after it was") {
    reset();
    {
        KnownStacks without(owner, 0, __builtin_frame_address(0));
        CHECK(without.find() == nullptr);
        CHECK_FALSE(without.insert({1, 2}, 10, {}));
    }
    // In a loop: from another line it would be another stack.
    const int expected[] = {0, 1, 1, 2};
    for (int i = 0; i < 4; ++i) {
        if (i == 2) {
            unwind::report_missed_unload();
        }
        look_here();
        CHECK(counts.found == expected[i]);
    }
    CHECK(counts.kept == 4);
    CHECK(counts.wrong == 0);
}

TEST_CASE("a capture within a capture does without") {
    reset();
    for (const bool nested : {false, true, false}) {
        const int found = counts.found;
        const int kept = counts.kept;
        // As if a signal handler had interrupted a capture.
        const std::uint64_t epoch = nested ? unwind::unload_epoch() : 0;
        const KnownStacks outer(owner, epoch, __builtin_frame_address(0));
        look_here();
        CHECK(counts.kept == kept + (nested ? 0 : 1));
        CHECK((!nested || counts.found == found));
    }
    CHECK(counts.found == 1);
    CHECK(counts.wrong == 0);
}

TEST_CASE("more threads than there is space for do without; their places are taken over") {
    reset();
    for (int round = 0; round < 3; ++round) {
        constexpr int many = 40;
        std::atomic<int> ready{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < many; ++i) {
            threads.emplace_back([&ready] {
                for (int look = 0; look < 4; ++look) {
                    look_below(1);
                    ready += look == 1 ? 1 : 0;
                    while (look == 1 && ready < many) {
                        std::this_thread::yield();
                    }
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }
    CHECK(counts.wrong == 0);
    CHECK(counts.walked == 480);
    CHECK(counts.kept < counts.walked);
    CHECK(counts.found > 3 * 3 * 20);
}
