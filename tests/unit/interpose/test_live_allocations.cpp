// A free has two halves around the driver's call; a reuse of the address must wait in between.
#include "interpose/memory/live_allocations.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.hpp"

using memlab::interpose::HandleClass;
using memlab::interpose::LiveAllocation;
using memlab::interpose::LiveAllocations;

namespace {

constexpr auto nothing = [] {};

LiveAllocation of(std::uint64_t bytes, std::uint32_t context = 1) {
    LiveAllocation allocation;
    allocation.requested = bytes;
    allocation.context = context;
    return allocation;
}

}  // namespace

TEST_CASE("a free finds its allocation, once") {
    LiveAllocations live;
    live.add(HandleClass::memory, 0x1000, of(10), nothing);
    CHECK_FALSE(live.begin_free(HandleClass::array, 0x1000));
    const auto begun = live.begin_free(HandleClass::memory, 0x1000);
    REQUIRE(begun);
    CHECK(begun->requested == 10);
    CHECK_FALSE(live.begin_free(HandleClass::memory, 0x1000));
    bool recorded = false;
    live.finish_free(HandleClass::memory, 0x1000, true, [&] { recorded = true; });
    CHECK(recorded);
    CHECK_FALSE(live.find(HandleClass::memory, 0x1000));
}

TEST_CASE("a free that fails in the driver leaves the allocation live") {
    LiveAllocations live;
    live.add(HandleClass::memory, 0x1000, of(10), nothing);
    REQUIRE(live.begin_free(HandleClass::memory, 0x1000));
    bool recorded = false;
    live.finish_free(HandleClass::memory, 0x1000, false, [&] { recorded = true; });
    CHECK_FALSE(recorded);
    CHECK(live.find(HandleClass::memory, 0x1000));
    CHECK(live.begin_free(HandleClass::memory, 0x1000));
}

TEST_CASE("equal values of different handle classes are different allocations") {
    LiveAllocations live;
    live.add(HandleClass::memory, 7, of(1), nothing);
    live.add(HandleClass::vmm_allocation, 7, of(2), nothing);
    CHECK(live.find(HandleClass::memory, 7)->requested == 1);
    CHECK(live.find(HandleClass::vmm_allocation, 7)->requested == 2);
}

TEST_CASE("destroying a context removes its allocations") {
    LiveAllocations live;
    live.add(HandleClass::memory, 1, of(1, 1), nothing);
    live.add(HandleClass::memory, 2, of(1, 2), nothing);
    live.remove_context(1);
    CHECK_FALSE(live.find(HandleClass::memory, 1));
    CHECK(live.find(HandleClass::memory, 2));
}

TEST_CASE("memory is leaving with its context, until it is removed") {
    LiveAllocations live;
    live.add(HandleClass::memory, 0x1000, of(0x400, 1), nothing);
    live.add(HandleClass::memory, 0x2000, of(0x400, 2), nothing);
    live.add(HandleClass::array, 0x3000, of(0x400, 1), nothing);
    const auto none = [](std::uint32_t) { return false; };
    const auto first = [](std::uint32_t context) { return context == 1; };
    CHECK_FALSE(live.is_leaving(0x1000, 0x400, none));
    CHECK(live.is_leaving(0x13ff, 1, first));
    CHECK(live.is_leaving(0x0c00, 0x401, first));
    CHECK(live.is_leaving(0x1000, 0, first));
    CHECK_FALSE(live.is_leaving(0x1400, 0x100, first));
    CHECK_FALSE(live.is_leaving(0x2000, 0x400, first));
    CHECK_FALSE(live.is_leaving(0x3000, 1, first));
    live.remove_context(1);
    CHECK_FALSE(live.is_leaving(0x1000, 0x400, first));
}

TEST_CASE("memory is being freed until its free has returned") {
    LiveAllocations live;
    live.add(HandleClass::memory, 0x2000, of(0x400, 2), nothing);
    REQUIRE(live.begin_free(HandleClass::memory, 0x2000));
    CHECK(live.is_being_freed(0x23ff, 1));
    CHECK_FALSE(live.is_being_freed(0x2400, 1));
    live.finish_free(HandleClass::memory, 0x2000, true, nothing);
    CHECK_FALSE(live.is_being_freed(0x2000, 1));
}

// A thread of real-time priority that only yields never lets the freeing thread get on.
TEST_CASE("an allocation that waits for a free sleeps") {
    LiveAllocations live;
    live.add(HandleClass::memory, 0x1000, of(0x400), nothing);
    REQUIRE(live.begin_free(HandleClass::memory, 0x1000));
    double used = 0;
    std::thread other([&] {
        timespec time{};
        live.add(HandleClass::memory, 0x1000, of(0x400), nothing);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        used = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    live.finish_free(HandleClass::memory, 0x1000, true, nothing);
    other.join();
    CHECK(used < 0.1);
}

TEST_CASE("bytes reused while their free is being recorded: the free is recorded first") {
    // How the driver may split the memory: the same address, one inside, one that only ends inside.
    const std::uint64_t again = GENERATE(0x1000, 0x1200, 0x0c00);
    for (int round = 0; round < 200; ++round) {
        LiveAllocations live;
        live.add(HandleClass::memory, 0x1000, of(0x400), nothing);
        REQUIRE(live.begin_free(HandleClass::memory, 0x1000));
        std::atomic<int> order{0};
        int alloc_at = 0;
        int free_at = 0;
        // Another thread gets the bytes from the driver before this one has recorded its free.
        std::thread other(
            [&] { live.add(HandleClass::memory, again, of(0x401), [&] { alloc_at = ++order; }); });
        std::this_thread::yield();
        live.finish_free(HandleClass::memory, 0x1000, true, [&] { free_at = ++order; });
        other.join();
        CHECK(free_at == 1);
        CHECK(alloc_at == 2);
        CHECK(live.find(HandleClass::memory, again)->requested == 0x401);
    }
}

TEST_CASE("allocations next to memory that is being freed do not wait") {
    LiveAllocations live;
    live.add(HandleClass::memory, 0x1000, of(0x400), nothing);
    REQUIRE(live.begin_free(HandleClass::memory, 0x1000));
    int recorded = 0;
    live.add(HandleClass::memory, 0x1400, of(1), [&] { ++recorded; });
    live.add(HandleClass::memory, 0x0fff, of(1), [&] { ++recorded; });
    live.add(HandleClass::array, 0x1200, of(1), [&] { ++recorded; });
    CHECK(recorded == 3);
    live.finish_free(HandleClass::memory, 0x1000, false, nothing);
    live.add(HandleClass::memory, 0x1300, of(1), [&] { ++recorded; });
    CHECK(recorded == 4);
}

TEST_CASE("random calls with concurrent frees match a simple model") {
    using Key = std::pair<HandleClass, std::uint64_t>;
    constexpr HandleClass classes[] = {HandleClass::memory, HandleClass::array,
                                       HandleClass::vmm_allocation};
    std::mt19937 random(11);
    LiveAllocations live;
    std::map<Key, LiveAllocation> expected;
    std::vector<Key> freeing;
    const auto is_freeing = [&](const Key& key) {
        return std::find(freeing.begin(), freeing.end(), key) != freeing.end();
    };
    for (int i = 0; i < 40'000; ++i) {
        const Key key{classes[random() % 3], 0x1000 * (1 + random() % 60)};
        switch (random() % 5) {
            case 0:
            case 1:
                if (!is_freeing(key)) {
                    const LiveAllocation made =
                        of(1 + random() % 0x1000, 1 + static_cast<std::uint32_t>(random() % 3));
                    bool recorded = false;
                    REQUIRE(live.add(key.first, key.second, made, [&] { recorded = true; }));
                    REQUIRE(recorded);
                    expected[key] = made;
                }
                break;
            case 2: {
                const auto begun = live.begin_free(key.first, key.second);
                REQUIRE(begun.has_value() == (expected.contains(key) && !is_freeing(key)));
                if (begun) {
                    REQUIRE(begun->requested == expected[key].requested);
                    freeing.push_back(key);
                }
                break;
            }
            case 3:
                if (!freeing.empty()) {
                    // Mostly the last one, as with a single thread.
                    const std::size_t at =
                        random() % 3 != 0 ? freeing.size() - 1 : random() % freeing.size();
                    const Key ends = freeing[at];
                    freeing.erase(freeing.begin() + static_cast<std::ptrdiff_t>(at));
                    const bool freed = random() % 4 != 0;
                    bool recorded = false;
                    live.finish_free(ends.first, ends.second, freed, [&] { recorded = true; });
                    REQUIRE(recorded == (freed && expected.contains(ends)));
                    if (freed) {
                        expected.erase(ends);
                    }
                }
                break;
            default:
                if (random() % 500 == 0) {
                    const auto context = static_cast<std::uint32_t>(1 + random() % 3);
                    live.remove_context(context);
                    std::erase_if(expected, [context](const auto& each) {
                        return each.second.context == context;
                    });
                } else {
                    const auto found = live.find(key.first, key.second);
                    REQUIRE(found.has_value() == expected.contains(key));
                    REQUIRE((!found || found->requested == expected[key].requested));
                }
        }
    }
    std::uint64_t bytes = 0;
    for (const auto& [key, allocation] : expected) {
        bytes += allocation.requested;
    }
    CHECK(live.bytes_by_kind(0)[static_cast<std::size_t>(memlab::trace::MemoryKind::device)] ==
          bytes);
}
