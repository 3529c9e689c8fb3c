// The code location cache: every hit is right, also while the table grows.
#include "profiler/python/code_location_cache.hpp"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using memlab::profiler::python::CodeLocationCache;

namespace {

const void* code_at(std::uint32_t i) {
    return reinterpret_cast<const void*>(std::uintptr_t{0x7f0000001000} + i / 8 * 496);
}
std::uint32_t offset_at(std::uint32_t i) {
    return i % 8 * 12;
}
CodeLocationCache::Location location(std::uint32_t i) {
    return {.code = code_at(i),
            .offset = offset_at(i),
            .table_bytes = i % 100,
            .identity = i + 1000,
            .id = i};
}

std::uint32_t look_up(const CodeLocationCache& cache, std::uint32_t i) {
    return cache.find(code_at(i), offset_at(i),
                      [i](std::uint64_t identity, std::uint32_t table_bytes) {
                          return identity == i + 1000 && table_bytes == i % 100;
                      });
}

}  // namespace

TEST_CASE("a known place is found only by its own code, instruction and identity") {
    CodeLocationCache cache;
    CHECK(look_up(cache, 5) == 0);
    cache.insert(location(5));
    CHECK(look_up(cache, 5) == 5);
    const auto any = [](std::uint64_t, std::uint32_t) { return true; };
    const auto none = [](std::uint64_t, std::uint32_t) { return false; };
    CHECK(cache.find(code_at(5), offset_at(5) + 2, any) == 0);
    CHECK(cache.find(code_at(50), offset_at(5), any) == 0);
    CHECK(cache.find(code_at(5), offset_at(5), none) == 0);
    CodeLocationCache::Location other = location(5);
    other.identity = 77;
    other.id = 9;
    cache.insert(other);  // another object at the address of one that is gone
    CHECK(look_up(cache, 5) == 0);
    CHECK(cache.find(code_at(5), offset_at(5), any) == 9);
}

TEST_CASE("the table of known places holds nine tenths of 12,000 of them") {
    CodeLocationCache cache;
    constexpr std::uint32_t count = 12'000;
    for (int round = 0; round < 2; ++round) {
        for (std::uint32_t i = 1; i <= count; ++i) {
            if (look_up(cache, i) == 0) {
                cache.insert(location(i));
                REQUIRE(look_up(cache, i) == i);
            }
        }
    }
    std::uint32_t found = 0;
    for (std::uint32_t i = 1; i <= count; ++i) {
        found += look_up(cache, i) == i ? 1 : 0;
    }
    CHECK(found > count * 9 / 10);
}

TEST_CASE("lookups during an insertion by another thread never return a wrong place") {
    CodeLocationCache cache;
    std::atomic<bool> done = false;
    std::atomic<std::uint32_t> wrong = 0;
    std::vector<std::thread> readers;
    for (std::uint32_t t = 0; t < 3; ++t) {
        readers.emplace_back([&, t] {
            for (std::uint32_t i = t; !done; i = i * 1664525 + 1013904223) {
                const std::uint32_t wanted = i % 5000 + 1;
                const std::uint32_t found = look_up(cache, wanted);
                wrong += found != 0 && found != wanted ? 1 : 0;
            }
        });
    }
    for (std::uint32_t i = 1; i <= 20'000; ++i) {
        cache.insert(location(i % 5000 + 1));
    }
    done = true;
    for (std::thread& reader : readers) {
        reader.join();
    }
    CHECK(wrong == 0);
    CHECK(look_up(cache, 4999) == 4999);
}
