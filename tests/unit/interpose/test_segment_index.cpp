// Which pool owns an address, with stale segments in the way.
#include "interpose/segment_index.hpp"

#include "tests/catch.hpp"

using memlab::interpose::Context;
using memlab::interpose::SegmentIndex;

namespace {

Context* owner(std::uintptr_t number) {
    return reinterpret_cast<Context*>(number * 16);
}

}  // namespace

TEST_CASE("an address belongs to the segment that holds it") {
    SegmentIndex index;
    CHECK(index.find(100) == nullptr);
    index.add(1000, 100, owner(1));
    index.add(2000, 100, owner(2));
    CHECK(index.find(999) == nullptr);
    CHECK(index.find(1000) == owner(1));
    CHECK(index.find(1099) == owner(1));
    CHECK(index.find(1100) == nullptr);
    CHECK(index.find(2050) == owner(2));
    index.remove(1000, owner(2));  // not its own
    CHECK(index.find(1000) == owner(1));
    index.remove(1000, owner(1));
    CHECK(index.find(1000) == nullptr);
}

TEST_CASE("a new segment replaces stale ones that overlap it") {
    SegmentIndex index;
    index.add(1000, 500, owner(1));
    index.add(1600, 100, owner(1));
    index.add(1400, 300, owner(2));
    CHECK(index.find(1000) == nullptr);
    CHECK(index.find(1400) == owner(2));
    CHECK(index.find(1650) == owner(2));
    CHECK(index.find(1699) == owner(2));
    CHECK(index.find(1700) == nullptr);
}

TEST_CASE("a lost context takes its own segments along, and no others") {
    SegmentIndex index;
    index.add(1000, 100, owner(1));
    index.add(2000, 100, owner(2));
    index.add(3000, 100, owner(1));
    index.remove_all(owner(1));
    CHECK(index.find(1000) == nullptr);
    CHECK(index.find(2000) == owner(2));
    CHECK(index.find(3000) == nullptr);
}
