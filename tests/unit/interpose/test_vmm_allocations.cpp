// Physical memory lives until its last handle and its last mapping are gone.
#include "interpose/vmm_allocations.hpp"

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
