// What is said to be free is available: the pool on nearly full devices, beside a model of plain
// CUDA (tests/support/plain_cuda.hpp) that gets the same calls. PoolOptions::packed_share is small,
// as memlab has it by default.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/plain_cuda.hpp"
#include "tests/unit/allocator/fixture.hpp"
#include "tests/unit/allocator/random.hpp"
#include "tests/unit/allocator/replay.hpp"

namespace memlab::allocator::testing {
namespace {

using memlab::support::PlainCuda;

PoolOptions sparing(double packed_share = 0.025) {
    PoolOptions options;
    options.expandable = true;
    options.packed_share = packed_share;
    options.trim_after_ns = 1000;
    return options;
}

/// A pool and plain CUDA on devices of the same size.
class Pair {
  public:
    /// With `checked` every event is checked, which takes as long as there are blocks.
    explicit Pair(std::uint64_t total, const PoolOptions& options = sparing(), bool checked = false)
        : backend(total),
          observer(options),
          pool(options, backend, checked ? &observer : nullptr),
          plain(total),
          total_(total) {}

    std::string problem() const {
        if (std::string problem = pool.validate(); !problem.empty()) {
            return problem;
        }
        const std::vector<std::string> of_backend = backend.problems();
        return !observer.problems().empty() ? observer.problems().front()
               : !of_backend.empty()        ? of_backend.front()
                                            : "";
    }

    std::uint64_t free_bytes() {
        return backend.total_memory() - backend.used() + pool.reclaimable();
    }

    /// The id of what was allocated; 0: out of memory.
    std::uint64_t allocate(std::uint64_t bytes) {
        const std::uint64_t said = free_bytes();
        const std::uint64_t id = ++last_id_;
        const bool served_plain = plain.allocate(id, bytes);
        const AllocResult result = pool.allocate(bytes, id);
        if (!result.status.ok()) {
            CAPTURE(bytes, said, plain.free_bytes(), total_);
            // The hard promise. A request takes whole pages, as plain CUDA's does.
            REQUIRE((bytes + page_bytes - 1) / page_bytes * page_bytes > said);
            if (served_plain) {
                // Within the share of the device in which blocks are packed.
                REQUIRE(bytes + total_ * 3 / 100 > said);
                plain.free(id);
            }
            return 0;
        }
        if (!served_plain) {
            pool.free(result.block.address, 0);  // packed more densely: keep step
            return 0;
        }
        live_[id] = result.block.address;
        return id;
    }

    void free(std::uint64_t id) {
        plain.free(id);
        pool.free(live_.at(id), 0);
        live_.erase(id);
    }

    /// The soft promise: what is said to be free is what plain CUDA would say, less 3 %.
    void compare() {
        CAPTURE(free_bytes(), plain.free_bytes(), total_);
        REQUIRE(free_bytes() + total_ * 3 / 100 >= plain.free_bytes());
    }

    const std::map<std::uint64_t, Address>& live() const { return live_; }

    SimulatedBackend backend;
    CheckingObserver observer;
    Pool pool;
    PlainCuda plain;

  private:
    const std::uint64_t total_;
    std::uint64_t last_id_ = 0;
    std::map<std::uint64_t, Address> live_;
};

constexpr std::uint64_t device = 8 * gib;

std::vector<std::uint64_t> fill(Pair& pair, std::uint64_t bytes) {
    std::vector<std::uint64_t> ids;
    while (const std::uint64_t id = pair.allocate(bytes)) {
        ids.push_back(id);
    }
    return ids;
}

void free_all_but(Pair& pair, const std::vector<std::uint64_t>& ids, std::size_t every) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (i % every != 0) {
            pair.free(ids[i]);
        }
    }
}

}  // namespace

TEST_CASE("of buffers just below and above pages, what is freed is available in one piece") {
    for (const std::uint64_t bytes : {2 * mib - 64 * kib, 2 * mib, 2 * mib + 1, 4 * mib, 65 * kib,
                                      700 * kib, mib, mib + 1, 3 * mib / 2, 20 * mib + 512}) {
        CAPTURE(bytes);
        Pair pair(device);
        const std::vector<std::uint64_t> ids = fill(pair, bytes);
        pair.compare();
        free_all_but(pair, ids, 2);
        pair.compare();
        if (pair.plain.free_bytes() > device * 3 / 100) {
            CHECK(pair.allocate(pair.plain.free_bytes() - device * 3 / 100) != 0);
        }
        CHECK(pair.problem() == sound);
    }
}

TEST_CASE("small buffers in place of a large one pin only their own pages") {
    for (const std::uint64_t bytes : {3 * mib / 2, 64 * kib, 2 * mib, 9 * mib}) {
        CAPTURE(bytes);
        Pair pair(device);
        pair.free(pair.allocate(device / 10 * 8));
        std::vector<std::uint64_t> ids;
        for (std::uint64_t sum = 0; sum < device / 2; sum += bytes) {
            ids.push_back(pair.allocate(bytes));
            REQUIRE(ids.back() != 0);
        }
        free_all_but(pair, ids, 40);
        pair.compare();
        CHECK(pair.allocate(pair.plain.free_bytes() - device * 3 / 100) != 0);
        CHECK(pair.problem() == sound);
    }
}

TEST_CASE(
    "frees that wait for a kernel, or the end of a capture, count as free and are available") {
    Pair pair(device);
    const std::vector<std::uint64_t> ids = fill(pair, 5 * mib);
    const std::uint64_t before = pair.free_bytes();
    pair.backend.submit();
    for (std::size_t i = 0; i < ids.size(); i += 2) {
        pair.plain.free(ids[i]);
        CHECK(pair.pool
                  .free(pair.live().at(ids[i]), 0,
                        i % 4 == 0 ? FenceTiming::deferred : FenceTiming::now_without_wait)
                  .kind == FreeResult::Kind::freed);
    }
    CHECK(pair.free_bytes() > before + ids.size() / 2 * 5 * mib);
    pair.compare();
    CHECK(pair.pool.release_cached(true) > ids.size() / 2 * 5 * mib);
    CHECK(pair.problem() == sound);
}

TEST_CASE("random programs on nearly full devices never get less than they were told") {
    const std::uint64_t first = setting("MEMLAB_TEST_SEED", 1);
    const std::uint64_t runs = setting("MEMLAB_TEST_RUNS", 40);
    for (std::uint64_t seed = first; seed < first + runs; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        const std::uint64_t total = (1 + random.below(4)) * gib;
        PoolOptions options = sparing(random.one_in(4) ? 0 : 0.025);
        options.unmaps_per_hold = 1 + random.below(8);
        Pair pair(total, options, true);
        pair.allocate(total / 2 / page_bytes * page_bytes);
        const auto one_size = [&](std::uint64_t kind) -> std::uint64_t {
            switch (kind) {
                case 0:
                    return 1 + random.below(2 * mib);
                case 1:
                    return 2 * mib - 512 + random.below(2) * 1024;
                case 2:
                    return 1 + random.below(20 * mib);
                case 3:
                    return 64 * mib + random.below(64 * mib);
                case 4:
                    return 1 + random.below(64 * kib);
                default:
                    return (1 + random.below(200)) * mib;
            }
        };
        std::uint64_t now = 0;
        std::vector<std::uint64_t> ids;
        std::uint64_t kind = 0;
        std::uint64_t keep = 1;
        for (int i = 0; i < 3000; ++i) {
            if (i % 100 == 0) {
                kind = random.below(6);
                keep = 1 + random.below(40);
            }
            if (random.below(100) < 2) {
                // Every k-th stays.
                std::vector<std::uint64_t> kept;
                for (std::size_t at = 0; at < ids.size(); ++at) {
                    if (at % keep == 0) {
                        kept.push_back(ids[at]);
                    } else {
                        pair.free(ids[at]);
                    }
                }
                ids = std::move(kept);
            } else if (ids.empty() || random.below(10) < 7) {
                if (const std::uint64_t id = pair.allocate(one_size(kind))) {
                    ids.push_back(id);
                }
            } else {
                const std::size_t at = random.below(ids.size());
                pair.free(ids[at]);
                ids[at] = ids.back();
                ids.pop_back();
            }
            if (random.one_in(20)) {
                now += random.below(800);
                pair.pool.tick(now);
            }
            if (i % 16 == 0) {
                pair.compare();
            }
            if (i % 500 == 0) {
                REQUIRE(pair.problem() == sound);
            }
        }
        REQUIRE(problem_of_replay(options, pair.observer.events(), total) == sound);
    }
}

TEST_CASE("a tick gives back a few places at a time, and says that there are more") {
    PoolOptions options = sparing(0);
    Fixture fixture(device, options);
    std::vector<Address> blocks;
    for (int i = 0; i < 100; ++i) {
        blocks.push_back(fixture.pool.allocate(2 * mib, 0).block.address);
    }
    for (const Address block : blocks) {
        fixture.pool.free(block, 0);
    }
    bool more = false;
    CHECK(fixture.pool.tick(1, &more) == 0);
    CHECK_FALSE(more);
    std::uint64_t calls = 0;
    std::uint64_t back = 0;
    do {
        const std::uint64_t bytes = fixture.pool.tick(1001, &more);
        CHECK(bytes <= options.unmaps_per_hold * 2 * mib);
        back += bytes;
        ++calls;
    } while (more);
    CHECK(back == 200 * mib);
    CHECK(calls >= 100 / options.unmaps_per_hold);
    CHECK(fixture.backend.used() == 0);
    CHECK(problem_of_replay(options, fixture.observer.events(), device) == sound);
    CHECK(fixture.problem() == sound);
}

}  // namespace memlab::allocator::testing
