// Lookup of the pool that owns an address, including stale segments.
#include "interpose/memory/segment_index.hpp"

#include <memory>

#include "tests/catch.hpp"

using memlab::interpose::Context;
using memlab::interpose::SegmentIndex;

namespace {

constexpr std::uint64_t page = SegmentIndex::page;
constexpr std::uint64_t leaf = 1ULL << 34;

Context* owner(std::uintptr_t number) {
    return reinterpret_cast<Context*>(number * 16);
}

}  // namespace

TEST_CASE("an address belongs to the segment that holds it") {
    const auto index = std::make_unique<SegmentIndex>();
    CHECK(index->find(100) == nullptr);
    CHECK(index->add(10 * page, page, owner(1)));
    CHECK(index->add(20 * page, 3 * page, owner(2)));
    CHECK(index->find(10 * page - 1) == nullptr);
    CHECK(index->find(10 * page) == owner(1));
    CHECK(index->find(11 * page - 1) == owner(1));
    CHECK(index->find(11 * page) == nullptr);
    CHECK(index->find(22 * page + 50) == owner(2));
    index->remove(10 * page, page, owner(2));  // not its own
    CHECK(index->find(10 * page) == owner(1));
    index->remove(10 * page, page, owner(1));
    CHECK(index->find(10 * page) == nullptr);
}

TEST_CASE("segments may be anywhere in the address space and span leaves of the table") {
    const auto index = std::make_unique<SegmentIndex>();
    CHECK(index->add(leaf - page, 2 * page, owner(1)));
    CHECK(index->add((1ULL << 48) - page, page, owner(2)));
    CHECK(index->find(leaf - 1) == owner(1));
    CHECK(index->find(leaf + page - 1) == owner(1));
    CHECK(index->find(leaf + page) == nullptr);
    CHECK(index->find((1ULL << 48) - 1) == owner(2));
    CHECK(index->find(1ULL << 48) == nullptr);
    CHECK(index->find(~0ULL) == nullptr);
    index->remove(leaf - page, 2 * page, owner(1));
    CHECK(index->find(leaf) == nullptr);
}

TEST_CASE("invalid segments are rejected") {
    const auto index = std::make_unique<SegmentIndex>();
    CHECK_FALSE(index->add(page + 512, page, owner(1)));
    CHECK_FALSE(index->add(page, page / 2, owner(1)));
    CHECK_FALSE(index->add(page, 0, owner(1)));
    CHECK_FALSE(index->add((1ULL << 48) - page, 2 * page, owner(1)));
    CHECK_FALSE(index->add(0 - page, page, owner(1)));
    CHECK(index->find(page + 512) == nullptr);
}

TEST_CASE("a new segment replaces stale ones that overlap it") {
    const auto index = std::make_unique<SegmentIndex>();
    CHECK(index->add(10 * page, 5 * page, owner(1)));
    CHECK(index->add(14 * page, 3 * page, owner(2)));
    CHECK(index->find(13 * page) == owner(1));
    CHECK(index->find(14 * page) == owner(2));
    CHECK(index->find(17 * page - 1) == owner(2));
    CHECK(index->find(17 * page) == nullptr);
}

TEST_CASE("removing a context removes its own segments only") {
    const auto index = std::make_unique<SegmentIndex>();
    CHECK(index->add(10 * page, page, owner(1)));
    CHECK(index->add(20 * page, page, owner(2)));
    CHECK(index->add(leaf, page, owner(1)));
    index->remove_all(owner(1));
    CHECK(index->find(10 * page) == nullptr);
    CHECK(index->find(20 * page) == owner(2));
    CHECK(index->find(leaf) == nullptr);
}
