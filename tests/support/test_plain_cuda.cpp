// The model of plain CUDA's memory (tests/support/plain_cuda.hpp) against what a GPU answered.
#include <cstdint>

#include "tests/catch.hpp"
#include "tests/support/plain_cuda.hpp"

using memlab::support::PlainCuda;

namespace {
constexpr std::uint64_t mib = 1ULL << 20;
constexpr std::uint64_t page = PlainCuda::page_bytes;
}  // namespace

TEST_CASE("large memory takes whole pages", "[plain_cuda]") {
    PlainCuda model(10 * page + 5);
    CHECK(model.allocate(1, mib + 1));
    CHECK(model.free_bytes() == 9 * page + 5);
    CHECK(model.allocate(2, 3 * page + 1));
    CHECK(model.free_bytes() == 5 * page + 5);
    CHECK_FALSE(model.allocate(3, 5 * page + 1));
    CHECK_FALSE(model.create(3, 6 * page));
    CHECK(model.create(3, 5 * page));
    CHECK(model.free_bytes() == 5);
    CHECK_FALSE(model.allocate(4, 1));
    model.free(2);
    CHECK(model.free_bytes() == 4 * page + 5);
    model.free(1);
    model.free(3);
    model.free(3);
    CHECK(model.free_bytes() == 10 * page + 5);
}

TEST_CASE("small memory shares pages until the last is freed", "[plain_cuda]") {
    PlainCuda model(2 * page);
    for (std::uint64_t id = 0; id < page / 512; ++id) {
        REQUIRE(model.allocate(id, 1 + id % 512));
    }
    CHECK(model.free_bytes() == page);
    CHECK(model.allocate(page, mib));
    CHECK(model.allocate(page + 1, mib));
    CHECK(model.free_bytes() == 0);
    CHECK_FALSE(model.allocate(page + 2, 1));
    model.free(page);
    CHECK(model.allocate(page + 2, 1));
    model.free(page + 1);
    CHECK(model.free_bytes() == 0);
    model.free(page + 2);
    CHECK(model.free_bytes() == page);
}
