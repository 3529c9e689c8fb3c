// MEMLAB_PASSTHROUGH: parsing and matching of rules.
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
    CHECK(rules("size>1GiB").matches_size((1ULL << 30) + 1));
    CHECK_FALSE(rules("size>1GiB").matches_size(1ULL << 30));
    CHECK(rules("size>=1GiB").matches_size(1ULL << 30));
    CHECK(rules("size<4k").matches_size(4095));
    CHECK_FALSE(rules("size<4k").matches_size(4096));
    CHECK(rules("size<=4k").matches_size(4096));
    CHECK(rules("size<512|size>1M").matches_size(2 << 20));
    CHECK(rules("size<512|size>1M").matches_size(1));
    CHECK_FALSE(rules("size<512|size>1M").matches_size(4096));
}

TEST_CASE("objects by their file name") {
    const Passthrough nccl = rules("site=libnccl");
    CHECK(nccl.needs_call_stack());
    CHECK(nccl.matches_object("/usr/lib/libnccl.so.2"));
    CHECK_FALSE(nccl.matches_object("/opt/libnccl/libother.so"));
    CHECK_FALSE(nccl.matches_size(1));
    CHECK_FALSE(rules("size>1G").needs_call_stack());
}

TEST_CASE("empty text has no rules") {
    CHECK(rules("").empty());
    CHECK_FALSE(rules("size>1").empty());
}

TEST_CASE("an invalid rule is rejected and leaves the rules unchanged") {
    Passthrough kept = rules("size>1MiB");
    for (const char* text : {"size", "size>", "size=1", "size>x", "1MiB", "site=", "site", "|",
                             "size<0", "size>18446744073709551615", "size>1||size>2", " size>1"}) {
        INFO(text);
        CHECK_FALSE(kept.parse(text));
    }
    CHECK(kept.matches_size(2 << 20));
    CHECK_FALSE(kept.matches_size(1));
}
