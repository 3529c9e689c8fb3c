// The common test fixture: a pool on a simulated device with the checking observer attached.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "allocator/pool.hpp"
#include "tests/catch.hpp"
#include "tests/support/simulated_backend.hpp"
#include "tests/unit/allocator/checking_observer.hpp"

namespace memlab::allocator::testing {

/// The result of validate() and problem() without a problem. Compare with it, so that a failing
/// test prints the problem.
inline constexpr std::string_view sound;

inline constexpr std::uint64_t kib = 1ULL << 10;
inline constexpr std::uint64_t mib = 1ULL << 20;
inline constexpr std::uint64_t gib = 1ULL << 30;

inline std::int64_t bytes_of(std::uint64_t size) {
    return static_cast<std::int64_t>(size);
}

inline PoolOptions with(FreeSync sync) {
    PoolOptions options;
    options.free_sync = sync;
    return options;
}

/// PyTorch's layout to the byte.
inline PoolOptions unaligned(FreeSync sync = FreeSync::automatic) {
    PoolOptions options = with(sync);
    options.coarse_alignment = options.rounding;
    options.fragmented_rounding = 0;
    return options;
}

struct Fixture {
    explicit Fixture(std::uint64_t total = 80 * gib, const PoolOptions& options = {})
        : backend(total), observer(options), pool(options, backend, &observer) {}

    /// An allocation that must succeed.
    BlockInfo get(std::uint64_t bytes, Tag tag = 0) {
        const AllocResult result = pool.allocate(bytes, tag);
        REQUIRE(result.status.ok());
        REQUIRE(result.block.requested == bytes);
        return result.block;
    }

    /// A free that must find its block and no error.
    void give(Address address, FenceTiming timing = FenceTiming::now) {
        const FreeResult result = pool.free(address, 0, timing);
        REQUIRE(result.kind == FreeResult::Kind::freed);
        REQUIRE(result.status.ok());
    }

    std::int64_t allocated() const { return pool.stats().allocated_bytes.all.current; }
    std::int64_t reserved() const { return pool.stats().reserved_bytes.all.current; }
    std::int64_t active() const { return pool.stats().active_bytes.all.current; }

    /// The first problem of the pool, the events, the statistics or the backend; else empty.
    std::string problem() const {
        if (std::string problem = pool.validate(); !problem.empty()) {
            return "pool: " + problem;
        }
        if (!observer.problems().empty()) {
            return "events: " + observer.problems().front();
        }
        if (const auto problems = backend.problems(); !problems.empty()) {
            return "backend: " + problems.front();
        }
        return observer.agrees(pool.stats()) ? "" : "the statistics differ from the events";
    }

    /// Frees all cached memory and checks that nothing is left.
    std::string problem_at_end() {
        pool.fence_deferred();
        backend.advance_all();
        pool.release_cached(true);
        if (std::string before = problem(); !before.empty()) {
            return before;
        }
        if (backend.fences() != 0) {
            return std::to_string(backend.fences()) + " fences were not released";
        }
        if (backend.segments() != 0 || backend.used() != 0) {
            return std::to_string(backend.segments()) + " segments were not freed";
        }
        return {};
    }

    SimulatedBackend backend;
    CheckingObserver observer;
    Pool pool;
};

}  // namespace memlab::allocator::testing
