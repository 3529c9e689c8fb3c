// Which functions were launched before.
#include <memory>

#include "interpose/ledger/launched.hpp"
#include "tests/catch.hpp"

using memlab::interpose::Launched;

namespace {

const void* function(std::size_t number) {
    return reinterpret_cast<const void*>(0x7f0000000000 + 64 * number);
}

void launch(Launched& launched, Launched::Key key) {
    launched.insert(key, launched.generation());
}

}  // namespace

TEST_CASE("what was launched is known at once") {
    const auto launched = std::make_unique<Launched>();
    CHECK_FALSE(launched->knows_at_once(function(1)));
    CHECK_FALSE(launched->knows(Launched::key(function(1))));
    launch(*launched, Launched::key(function(1)));
    CHECK(launched->knows_at_once(function(1)));
    CHECK(launched->knows(Launched::key(function(1))));
    CHECK_FALSE(launched->knows_at_once(function(2)));
    launched->forget(Launched::key(function(1)));
    CHECK_FALSE(launched->knows_at_once(function(1)));
}

TEST_CASE("of several contexts each has its own") {
    const auto launched = std::make_unique<Launched>();
    launch(*launched, Launched::key(function(1), function(100)));
    CHECK(launched->knows(Launched::key(function(1), function(100))));
    CHECK_FALSE(launched->knows(Launched::key(function(1), function(101))));
    CHECK_FALSE(launched->knows(Launched::key(function(2), function(100))));
    CHECK_FALSE(launched->knows_at_once(function(1)));
}

TEST_CASE("a launch that was under way when handles were forgotten counts for nothing") {
    const auto launched = std::make_unique<Launched>();
    const std::uint64_t before = launched->generation();
    launched->clear();
    launched->insert(Launched::key(function(1)), before);
    CHECK_FALSE(launched->knows(Launched::key(function(1))));
    const std::uint64_t later = launched->generation();
    launched->forget(Launched::key(function(2)));
    launched->insert(Launched::key(function(1)), later);
    CHECK_FALSE(launched->knows(Launched::key(function(1))));
}

TEST_CASE("a thousand functions stay, most of them known at once") {
    const auto launched = std::make_unique<Launched>();
    std::size_t known = 0;
    std::size_t at_once = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
        launch(*launched, Launched::key(function(i)));
    }
    for (std::size_t i = 0; i < 1000; ++i) {
        known += launched->knows(Launched::key(function(i))) ? 1 : 0;
        at_once += launched->knows_at_once(function(i)) ? 1 : 0;
    }
    CHECK(known == 1000);
    CHECK(at_once > 850);
    launched->clear();
    for (std::size_t i = 0; i < 1000; ++i) {
        CHECK_FALSE(launched->knows(Launched::key(function(i))));
    }
}

TEST_CASE("more functions than there are places displace each other") {
    const auto launched = std::make_unique<Launched>();
    for (std::size_t i = 0; i < 20'000; ++i) {
        launch(*launched, Launched::key(function(i)));
        CHECK(launched->knows(Launched::key(function(i))));
    }
    CHECK_FALSE(launched->knows(Launched::key(function(0))));
}
