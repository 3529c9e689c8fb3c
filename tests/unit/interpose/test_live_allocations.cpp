// A free has two halves around the driver's call; nobody may see the address reused in between.
#include "interpose/live_allocations.hpp"

#include <atomic>
#include <thread>

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

TEST_CASE("a free knows what it frees, once") {
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

TEST_CASE("a free that the driver refused leaves the allocation live") {
    LiveAllocations live;
    live.add(HandleClass::memory, 0x1000, of(10), nothing);
    REQUIRE(live.begin_free(HandleClass::memory, 0x1000));
    bool recorded = false;
    live.finish_free(HandleClass::memory, 0x1000, false, [&] { recorded = true; });
    CHECK_FALSE(recorded);
    CHECK(live.find(HandleClass::memory, 0x1000));
    CHECK(live.begin_free(HandleClass::memory, 0x1000));
}

TEST_CASE("equal numbers of different classes are different allocations") {
    LiveAllocations live;
    live.add(HandleClass::memory, 7, of(1), nothing);
    live.add(HandleClass::vmm_allocation, 7, of(2), nothing);
    CHECK(live.find(HandleClass::memory, 7)->requested == 1);
    CHECK(live.find(HandleClass::vmm_allocation, 7)->requested == 2);
}

TEST_CASE("a context takes its allocations along") {
    LiveAllocations live;
    live.add(HandleClass::memory, 1, of(1, 1), nothing);
    live.add(HandleClass::memory, 2, of(1, 2), nothing);
    live.remove_context(1);
    CHECK_FALSE(live.find(HandleClass::memory, 1));
    CHECK(live.find(HandleClass::memory, 2));
}

TEST_CASE("bytes reused while their free is being recorded: the free is recorded first") {
    // From the driver's cuts: the same address, one inside, one that only ends inside.
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

TEST_CASE("what lies beside memory that is being freed need not wait") {
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
