// Which code a context was asked for already.
#include <memory>

#include "interpose/ledger/loaded_code.hpp"
#include "tests/catch.hpp"

using memlab::interpose::LoadedCode;

namespace {

const void* handle(std::size_t number) {
    return reinterpret_cast<const void*>(0x7f0000000000 + 64 * number);
}

}  // namespace

TEST_CASE("code is loaded once in each context") {
    const auto loaded = std::make_unique<LoadedCode>();
    const std::uint64_t tag = loaded->tag(handle(1), handle(100));
    CHECK_FALSE(loaded->contains(tag));
    loaded->insert(tag);
    CHECK(loaded->contains(tag));
    CHECK_FALSE(loaded->contains(loaded->tag(handle(1), handle(101))));
    CHECK_FALSE(loaded->contains(loaded->tag(handle(2), handle(100))));
    CHECK_FALSE(loaded->contains(loaded->tag(handle(100), handle(1))));
}

TEST_CASE("handles are forgotten, also those of a load that goes on meanwhile") {
    const auto loaded = std::make_unique<LoadedCode>();
    const std::uint64_t before = loaded->tag(handle(1), handle(100));
    loaded->insert(before);
    loaded->clear();
    CHECK_FALSE(loaded->contains(loaded->tag(handle(1), handle(100))));
    loaded->insert(before);  // of a call that began before the clear()
    CHECK_FALSE(loaded->contains(loaded->tag(handle(1), handle(100))));
}

TEST_CASE("a thousand kernels mostly stay") {
    const auto loaded = std::make_unique<LoadedCode>();
    constexpr std::size_t kernels = 1000;
    for (std::size_t i = 0; i < kernels; ++i) {
        loaded->insert(loaded->tag(handle(i), handle(10000)));
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < kernels; ++i) {
        kept += loaded->contains(loaded->tag(handle(i), handle(10000))) ? 1 : 0;
    }
    // 1000 in 4096 places: 1 - e^(-1000/4096) of the places are taken, 888 of them.
    CHECK(kept > 850);
    CHECK(kept < kernels);
}
