// The pool when malloc fails: allocations fail without a change, and frees need no memory.
#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "tests/support/null_backend.hpp"
#include "tests/unit/allocator/fixture.hpp"

namespace {

// How many allocations of this thread still succeed; negative: all of them.
thread_local int allowance = -1;
thread_local std::uint64_t allocations = 0;
thread_local std::int64_t held = 0;  // bytes

void* counted(void* memory) {
    held += static_cast<std::int64_t>(malloc_usable_size(memory));
    return memory;
}

void give_back(void* memory) {
    held -= static_cast<std::int64_t>(malloc_usable_size(memory));
    std::free(memory);
}

void* get_memory(std::size_t size) {
    ++allocations;
    if (allowance == 0) {
        throw std::bad_alloc();
    }
    if (allowance > 0) {
        --allowance;
    }
    void* memory = std::malloc(size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return counted(memory);
}

}  // namespace

void* operator new(std::size_t size) {
    return get_memory(size);
}
void* operator new[](std::size_t size) {
    return get_memory(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return counted(std::malloc(size));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
    return counted(std::malloc(size));
}
void operator delete(void* memory) noexcept {
    give_back(memory);
}
void operator delete[](void* memory) noexcept {
    give_back(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    give_back(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    give_back(memory);
}

namespace memlab::allocator::testing {

TEST_CASE("without host memory an allocation is refused and the pool unchanged") {
    int failures = 0;
    for (int allowed = 0; allowed < 64; ++allowed) {
        NullBackend backend;
        Pool pool({}, backend, nullptr);
        std::vector<Address> addresses;
        addresses.reserve(100);
        const auto fill = [&] {
            for (int i = 0; i < 8; ++i) {
                const AllocResult result = pool.allocate(i % 2 == 0 ? 100'000 : 700, 0);
                if (!result.status.ok()) {
                    ++failures;
                    return result.status;
                }
                addresses.push_back(result.block.address);
            }
            return BackendStatus{};
        };
        allowance = allowed;
        const BackendStatus status = fill();
        allowance = -1;
        if (!status.ok()) {
            CHECK(status.kind == BackendStatus::Kind::error);
            CHECK(status.code == out_of_memory_code);
        }
        CHECK(pool.validate() == sound);
        CHECK(pool.stats().allocation.all.current == static_cast<std::int64_t>(addresses.size()));
        CHECK(pool.stats().num_ooms == 0);
        CHECK(fill().ok());
        CHECK(pool.validate() == sound);
    }
    CHECK(failures > 8);  // both outcomes were seen
    CHECK(failures < 64);
}

TEST_CASE("taking memory back needs none") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always, FreeSync::never}) {
        NullBackend backend;
        Pool pool(with(sync), backend, nullptr);
        std::vector<Address> addresses;
        for (const std::uint64_t size :
             std::vector<std::uint64_t>{100, 100'000, 700, 4'000'000, 30 * mib}) {
            for (int i = 0; i < 20; ++i) {
                addresses.push_back(pool.allocate(size, 0).block.address);
            }
        }
        bool all_freed = true;
        allowance = 0;
        for (std::size_t i = 0; i < addresses.size(); ++i) {
            backend.busy = i % 3 == 0;
            const FenceTiming timing = i % 5 == 0 ? FenceTiming::deferred : FenceTiming::now;
            all_freed &= pool.free(addresses[i], 0, timing).kind == FreeResult::Kind::freed;
        }
        pool.fence_deferred();
        backend.busy = false;
        pool.release_cached(true);
        allowance = -1;
        CHECK(all_freed);
        CHECK(pool.stats().reserved_bytes.all.current == 0);
        CHECK(pool.validate() == sound);
    }
}

TEST_CASE("taking memory back into a range needs none, unmapping it may wait for some") {
    PoolOptions options = with(FreeSync::automatic);
    options.expandable = true;
    int unmapped = 0;
    for (int count = 1; count < 40; ++count) {
        NullBackend backend;
        Pool pool(options, backend, nullptr);
        std::vector<Address> kept;
        std::vector<Address> given;
        for (int i = 0; i < count; ++i) {
            given.push_back(pool.allocate(9 * mib, 0).block.address);
            kept.push_back(pool.allocate(700'000 + 9 * mib, 0).block.address);
        }
        allowance = 0;
        bool all_freed = true;
        for (const Address address : given) {
            all_freed &= pool.free(address, 0).kind == FreeResult::Kind::freed;
        }
        const std::uint64_t released = pool.release_cached(true);
        allowance = -1;
        CHECK(all_freed);
        CHECK(pool.validate() == sound);
        unmapped += released != 0 ? 1 : 0;
        for (const Address address : kept) {
            pool.free(address, 0);
        }
        pool.release_cached(true);
        CHECK(pool.stats().reserved_bytes.all.current == 0);
        CHECK(pool.validate() == sound);
    }
    CHECK(unmapped > 0);
}

TEST_CASE("a steady program costs no host memory") {
    NullBackend backend;
    Pool pool({}, backend, nullptr);
    Address held[6] = {};
    const std::uint64_t sizes[6] = {100, 100'000, 700, 4'000'000, 12 * mib, 512};
    const auto step = [&] {
        for (int i = 0; i < 6; ++i) {
            held[i] = pool.allocate(sizes[i], 0).block.address;
        }
        for (const int i : {3, 0, 5, 1, 4, 2}) {
            pool.free(held[i], 0);
        }
    };
    step();
    step();
    const std::uint64_t before = allocations;
    for (int i = 0; i < 100; ++i) {
        step();
    }
    const std::uint64_t after = allocations;
    CHECK(after == before);
    CHECK(pool.validate() == sound);
}

TEST_CASE("an abandoned pool keeps no host memory to speak of, and goes on") {
    constexpr std::int64_t little = 8192;
    NullBackend backend;
    const std::int64_t before = held;
    const auto pool = std::make_unique<Pool>(with(FreeSync::never), backend, nullptr);
    for (int round = 0; round < 3; ++round) {
        backend.busy = true;
        std::vector<Address> addresses;
        for (std::uint64_t i = 0; i < 3000; ++i) {
            addresses.push_back(pool->allocate(512 + i * 1000, 0).block.address);
        }
        for (std::size_t i = 0; i < addresses.size(); i += 3) {
            pool->free(addresses[i], 0);
            pool->free_in(i % 200 + 8, addresses[i + 1], 0);
        }
        CHECK(pool->validate() == sound);
        addresses = std::vector<Address>();
        CHECK(held - before > 100 * little);
        pool->abandon();
        CHECK(held - before < little);
        CHECK(pool->validate() == sound);
        CHECK(pool->stats().largest_free == 0);
        CHECK(pool->tick(1) == 0);
        CHECK(pool->release_cached(true) == 0);
        CHECK(pool->free(NullBackend::first_address, 0).kind == FreeResult::Kind::not_ours);
    }
}

}  // namespace memlab::allocator::testing
