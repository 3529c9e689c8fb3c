// MEMLAB_PASSTHROUGH: which texts are rules, and what they take.
#include "interpose/options/passthrough.hpp"

#include "tests/catch.hpp"

using memlab::interpose::Passthrough;

namespace {

Passthrough rules(const char* text) {
    Passthrough parsed;
    REQUIRE(parsed.parse(text));
    return parsed;
}

}  // namespace

TEST_CASE("sizes above and below a bound") {
    CHECK(rules("size>1GiB").takes_size((1ULL << 30) + 1));
    CHECK_FALSE(rules("size>1GiB").takes_size(1ULL << 30));
    CHECK(rules("size>=1GiB").takes_size(1ULL << 30));
    CHECK(rules("size<4k").takes_size(4095));
    CHECK_FALSE(rules("size<4k").takes_size(4096));
    CHECK(rules("size<=4k").takes_size(4096));
    CHECK(rules("size<512|size>1M").takes_size(2 << 20));
    CHECK(rules("size<512|size>1M").takes_size(1));
    CHECK_FALSE(rules("size<512|size>1M").takes_size(4096));
}

TEST_CASE("objects by their file name") {
    const Passthrough nccl = rules("site=libnccl");
    CHECK(nccl.asks_for_site());
    CHECK(nccl.takes_object("/usr/lib/libnccl.so.2"));
    CHECK_FALSE(nccl.takes_object("/opt/libnccl/libother.so"));
    CHECK_FALSE(nccl.takes_size(1));
    CHECK_FALSE(rules("size>1G").asks_for_site());
}

TEST_CASE("no text, no rule") {
    CHECK(rules("").empty());
    CHECK_FALSE(rules("size>1").empty());
}

TEST_CASE("what is no rule is refused, and what was there stays") {
    Passthrough kept = rules("size>1MiB");
    for (const char* text : {"size", "size>", "size=1", "size>x", "1MiB", "site=", "site", "|",
                             "size<0", "size>18446744073709551615", "size>1||size>2", " size>1"}) {
        INFO(text);
        CHECK_FALSE(kept.parse(text));
    }
    CHECK(kept.takes_size(2 << 20));
    CHECK_FALSE(kept.takes_size(1));
}
