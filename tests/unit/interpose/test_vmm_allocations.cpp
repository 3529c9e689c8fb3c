// Physical memory lives until its last handle and its last mapping are gone.
#include "interpose/memory/vmm_allocations.hpp"

#include <algorithm>
#include <map>
#include <random>

#include "tests/catch.hpp"

using memlab::interpose::VmmAllocations;
using Numbers = std::vector<std::uint64_t>;

TEST_CASE("released without a mapping: dead at once") {
    VmmAllocations vmm;
    const std::uint64_t number = vmm.created(42);
    CHECK(vmm.released(42) == Numbers{number});
    CHECK(vmm.released(42).empty());
}

TEST_CASE("released while mapped: dies with the last mapping") {
    VmmAllocations vmm;
    const std::uint64_t number = vmm.created(42);
    vmm.mapped(0x10000, 0x1000, 42);
    vmm.mapped(0x20000, 0x1000, 42);
    CHECK(vmm.released(42).empty());
    CHECK(vmm.unmapped(0x10000, 0x1000).empty());
    CHECK(vmm.unmapped(0x20000, 0x1000) == Numbers{number});
}

TEST_CASE("unmapped before the release, and a retained handle") {
    VmmAllocations vmm;
    const std::uint64_t number = vmm.created(42);
    vmm.mapped(0x10000, 0x1000, 42);
    vmm.retained(42);
    CHECK(vmm.unmapped(0x10000, 0x1000).empty());
    CHECK(vmm.released(42).empty());
    CHECK(vmm.released(42) == Numbers{number});
}

TEST_CASE("one unmap over several mappings") {
    VmmAllocations vmm;
    const std::uint64_t first = vmm.created(1);
    const std::uint64_t second = vmm.created(2);
    vmm.mapped(0x10000, 0x1000, 1);
    vmm.mapped(0x11000, 0x1000, 2);
    CHECK(vmm.released(1).empty());
    CHECK(vmm.released(2).empty());
    CHECK(vmm.unmapped(0x10000, 0x2000) == Numbers{first, second});
}

TEST_CASE("a handle's value may be reused while the old allocation is still mapped") {
    VmmAllocations vmm;
    const std::uint64_t old_number = vmm.created(42);
    vmm.mapped(0x10000, 0x1000, 42);
    CHECK(vmm.released(42).empty());
    const std::uint64_t new_number = vmm.created(42);
    CHECK(new_number != old_number);
    CHECK(vmm.unmapped(0x10000, 0x1000) == Numbers{old_number});
    CHECK(vmm.released(42) == Numbers{new_number});
}

TEST_CASE("random calls match a simple model") {
    struct Allocation {
        int handles = 0;
        int mappings = 0;
    };
    constexpr std::uint64_t page = 0x200000;
    constexpr std::uint64_t pages = 300;  // more than one chunk of the map holds
    std::mt19937 random(7);
    VmmAllocations vmm;
    std::map<std::uint64_t, Allocation> allocations;        // by number
    std::map<VmmAllocations::Handle, std::uint64_t> named;  // handles that are not released
    struct Mapping {
        std::uint64_t bytes;
        std::uint64_t number;
    };
    std::map<std::uint64_t, Mapping> mapped;  // by address
    const auto reap = [&](std::uint64_t number, Numbers& dead) {
        const Allocation& gone = allocations.at(number);
        if (gone.handles == 0 && gone.mappings == 0) {
            dead.push_back(number);
            allocations.erase(number);
        }
    };
    const auto is_free = [&](std::uint64_t begin, std::uint64_t end) {
        const auto above = mapped.lower_bound(end);
        return above == mapped.begin() ||
               std::prev(above)->first + std::prev(above)->second.bytes <= begin;
    };
    for (int i = 0; i < 60'000; ++i) {
        const VmmAllocations::Handle handle = random() % 40;
        const bool is_known = named.contains(handle);
        const std::uint64_t address = page * (random() % pages);
        const std::uint64_t bytes = page * (1 + random() % 4);
        switch (random() % 6) {
            case 0:
                if (!is_known) {
                    const std::uint64_t number = vmm.created(handle);
                    REQUIRE_FALSE(allocations.contains(number));
                    allocations[number].handles = 1;
                    named[handle] = number;
                }
                break;
            case 1:
                vmm.retained(handle);
                if (is_known) {
                    ++allocations.at(named[handle]).handles;
                }
                break;
            case 2: {
                Numbers expected;
                if (is_known) {
                    const std::uint64_t number = named[handle];
                    if (--allocations.at(number).handles == 0) {
                        named.erase(handle);
                    }
                    reap(number, expected);
                }
                REQUIRE(vmm.released(handle) == expected);
                break;
            }
            case 3:
            case 4:
                if (is_known && is_free(address, address + bytes)) {
                    vmm.mapped(address, bytes, handle);
                    mapped[address] = {bytes, named[handle]};
                    ++allocations.at(named[handle]).mappings;
                }
                break;
            default: {
                // Whole mappings, one or several, as the driver has it; holes between them too.
                const std::uint64_t range = random() % 4 == 0 ? 8 * bytes : bytes;
                Numbers expected;
                const auto first = mapped.lower_bound(address);
                auto last = first;
                std::uint64_t end = address;
                for (; last != mapped.end() && last->first < address + range; ++last) {
                    end = last->first + last->second.bytes;
                }
                for (auto at = first; at != last; ++at) {
                    --allocations.at(at->second.number).mappings;
                    reap(at->second.number, expected);
                }
                mapped.erase(first, last);
                REQUIRE(vmm.unmapped(address, std::max(end - address, range)) == expected);
                break;
            }
        }
    }
}
