// How much one hold of the pool's lock does, in states that are as bad as a program can make them:
// calls of the driver, and steps over the indexes.
//
// The pool's sources are compiled once more for this test, so that the compiler counts each basic
// block that runs (-fsanitize-coverage=trace-pc): every loop counts, also one that is added later,
// and the product has no counter. A step over an index takes a few blocks.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "allocator/pool.hpp"
#include "tests/catch.hpp"
#include "tests/support/simulated_backend.hpp"

namespace {

struct Hold {
    std::uint64_t blocks = 0;
    std::uint64_t calls = 0;
};

constinit std::uint64_t basic_blocks = 0;
constinit std::uint64_t taken_at = 0;  ///< basic_blocks when the lock was taken
constinit bool held = false;
constinit Hold now{};
constinit Hold worst{};  ///< of each kind since begin()

void end_hold() {
    worst.blocks = std::max(worst.blocks, basic_blocks - taken_at);
    worst.calls = std::max(worst.calls, now.calls);
}

}  // namespace

extern "C" void __sanitizer_cov_trace_pc();
extern "C" void __sanitizer_cov_trace_pc() {
    ++basic_blocks;
}
// What the lock tells ThreadSanitizer.
extern "C" void __tsan_mutex_pre_lock(void*, unsigned) {}
extern "C" void __tsan_mutex_post_lock(void*, unsigned, int) {
    held = true;
    taken_at = basic_blocks;
    now = {};
}
extern "C" int __tsan_mutex_pre_unlock(void*, unsigned) {
    end_hold();
    held = false;
    return 0;
}
extern "C" void __tsan_mutex_post_unlock(void*, unsigned) {}

namespace memlab::allocator::testing {
namespace {

constexpr std::uint64_t kib = 1ULL << 10;
constexpr std::uint64_t mib = 1ULL << 20;
constexpr std::uint64_t gib = 1ULL << 30;

/// Counts the driver calls that are made with the lock held.
class CountingBackend final : public DeviceBackend {
  public:
    explicit CountingBackend(std::uint64_t total) : device(total) {}

    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override {
        return call([&] { return device.segment_alloc(bytes, address); });
    }
    BackendStatus segment_free(Address address, std::uint64_t bytes) override {
        return call([&] { return device.segment_free(address, bytes); });
    }
    BackendStatus range_reserve(Address* base, std::uint64_t bytes) override {
        return call([&] { return device.range_reserve(base, bytes); });
    }
    BackendStatus range_release(Address base, std::uint64_t bytes) override {
        return call([&] { return device.range_release(base, bytes); });
    }
    BackendStatus pages_map(Address address, std::uint64_t bytes, std::uint64_t chunk) override {
        return call([&] { return device.pages_map(address, bytes, chunk); });
    }
    BackendStatus pages_unmap(Address address, std::uint64_t bytes) override {
        return call([&] { return device.pages_unmap(address, bytes); });
    }
    std::uint64_t total_memory() const override { return device.total_memory(); }
    BackendStatus fence_record(Fence* fence) override {
        return call([&] { return device.fence_record(fence); });
    }
    BackendStatus fence_record_in(StreamId, Fence* fence, bool*) override {
        return fence_record(fence);
    }
    FenceState fence_query(Fence fence) override {
        return call([&] { return device.fence_query(fence); });
    }
    BackendStatus fence_wait_device(Fence fence) override {
        return call([&] { return device.fence_wait_device(fence); });
    }
    BackendStatus fence_wait_host(Fence fence) override {
        return call([&] { return device.fence_wait_host(fence); });
    }
    bool caller_needs_host_wait() const override { return false; }
    void fence_release(Fence fence) override { device.fence_release(fence); }  // no driver call

    SimulatedBackend device;

  private:
    template <typename Call>
    std::invoke_result_t<Call> call(const Call& make) {
        const std::uint64_t before = basic_blocks;
        const auto result = make();
        basic_blocks = before;
        now.calls += held ? 1 : 0;
        return result;
    }
};

/// A step over an index, such as a level of a tree, takes about five blocks, a few of them more.
constexpr std::uint64_t most_steps = 10'000;
constexpr std::uint64_t blocks_per_step = 5;
constexpr std::uint64_t most_calls = 8;

/// What all operations do in some state.
struct World {
    World(const std::string& name, const PoolOptions& options)
        : name_(name), backend(141 * gib), pool(options, backend, nullptr) {}

    std::vector<Address> fill(std::size_t count, std::uint64_t bytes) {
        std::vector<Address> all;
        while (all.size() < count) {
            const AllocResult result = pool.allocate(bytes, 0);
            if (!result.status.ok()) {
                FAIL("out of memory");
            }
            all.push_back(result.block.address);
        }
        return all;
    }

    void free_every(std::size_t nth, const std::vector<Address>& all) {
        for (std::size_t i = 0; i < all.size(); i += nth) {
            pool.free(all[i], 0);
        }
    }

    template <typename Call>
    void measure(const char* what, const Call& call) {
        worst = {};
        call();
        CAPTURE(name_, what);
        CHECK(worst.calls <= most_calls);
        CHECK(worst.blocks > 0);
        CHECK(worst.blocks <= most_steps * blocks_per_step);
        worst_ = std::max(worst_, worst.blocks / blocks_per_step);
    }

    std::uint64_t active_bytes() const {
        return static_cast<std::uint64_t>(pool.stats().active_bytes.all.current);
    }

    void measure_all() {
        for (const std::uint64_t bytes : {std::uint64_t{1000}, 2 * mib, 5 * mib, 40 * mib}) {
            Address address = 0;
            measure("allocation", [&] { address = pool.allocate(bytes, 0).block.address; });
            measure("free", [&] { pool.free(address, 0); });
        }
        measure("reclaimable", [&] { pool.reclaimable(); });
        measure("the first tick", [&] { pool.tick(1); });
        measure("a tick that sees the rest", [&] { pool.tick(2); });
        bool more = false;
        measure("a tick that gives back", [&] { pool.tick(2000, &more); });
        measure("the next one", [&] { pool.tick(2000, &more); });
        measure("next_tick", [&] { pool.next_tick(); });
        measure("an allocation that makes room", [&] { pool.allocate(backend.total_memory(), 0); });
        measure("release_cached", [&] { pool.release_cached(false); });
        std::printf("%-40s at most %llu steps in a hold\n", name_.c_str(),
                    static_cast<unsigned long long>(worst_));
    }

  private:
    const std::string name_;
    std::uint64_t worst_ = 0;

  public:
    CountingBackend backend;
    Pool pool;
};

PoolOptions ranges(double packed_share) {
    PoolOptions options;
    options.expandable = true;
    options.packed_share = packed_share;
    options.trim_after_ns = 1000;
    options.free_sync = FreeSync::never;
    return options;
}

constexpr std::size_t many = 40'000;

}  // namespace

TEST_CASE("a hold of the lock is short beside tens of thousands of cached blocks") {
    World world("cached", ranges(0));
    world.free_every(2, world.fill(many, 2 * mib));
    world.measure_all();
}

TEST_CASE("a hold of the lock is short beside tens of thousands of blocks that fit nowhere") {
    World world("cached, of other sizes", ranges(0));
    world.free_every(1, world.fill(many / 4, 3 * mib));
    world.free_every(2, world.fill(many, 700'000));
    world.measure_all();
}

TEST_CASE("a hold of the lock is short beside tens of thousands of holes") {
    for (const double share : {0.0, 1.0}) {
        World world("holes", ranges(share));
        world.free_every(2, world.fill(many, 2 * mib));
        world.pool.release_cached(false);
        world.measure_all();
    }
}

TEST_CASE("a hold of the lock is short beside tens of thousands of pending frees") {
    World world("pending", ranges(0));
    const std::vector<Address> all = world.fill(many, 2 * mib);
    world.backend.device.submit();
    world.free_every(1, all);
    world.measure("an allocation", [&] { world.pool.allocate(5 * mib, 0); });
    world.measure("a tick", [&] { world.pool.tick(1); });
    world.measure("reclaimable", [&] { world.pool.reclaimable(); });
    world.measure("an allocation for which none of them will do",
                  [&] { world.pool.allocate(130 * gib, 0); });
}

TEST_CASE("completed frees are retired in parts") {
    const bool one_fence = GENERATE(false, true);
    const unsigned streams = GENERATE(0U, 1U, 200U);
    World world("completed", ranges(0));
    std::size_t freed = 0;
    for (const Address each : world.fill(many, 2 * mib)) {
        if (freed++ == 0 || !one_fence) {
            world.backend.device.submit();
        }
        if (streams == 0) {
            world.pool.free(each, 0);
        } else {
            world.pool.free_in(1 + freed % streams, each, 0);
        }
    }
    world.backend.device.advance_all();
    Address address = 0;
    world.measure("an allocation for which one of them will do",
                  [&] { address = world.pool.allocate(2 * mib, 0).block.address; });
    CHECK(address != 0);
    CHECK(world.active_bytes() > many * mib);
    world.measure("an allocation for which none will do", [&] { world.pool.allocate(5 * mib, 0); });
    CHECK(world.active_bytes() < 10 * mib);
}

TEST_CASE("frees whose fences come later get them in parts") {
    World world("deferred", ranges(0));
    for (const Address each : world.fill(many, 2 * mib)) {
        world.pool.free(each, 0, FenceTiming::deferred);
    }
    world.backend.device.submit();
    world.measure("fence_deferred", [&] { world.pool.fence_deferred(); });
    world.backend.device.advance_all();
    world.measure("an allocation", [&] { world.pool.allocate(5 * mib, 0); });
    CHECK(world.active_bytes() < 10 * mib);
}

TEST_CASE("a hold of the lock is short beside as many blocks as share chunks") {
    World world("packed", ranges(0.025));
    world.free_every(2, world.fill(1800, 2 * mib));
    world.measure_all();
}

TEST_CASE("a hold of the lock is short beside blocks without whole chunks") {
    World world("parts of chunks", ranges(0.025));
    // Chunks of 64 MiB, and in each two free blocks of 20 MiB.
    world.free_every(3, world.fill(54 * 3, 20 * mib));
    world.measure_all();
}

TEST_CASE("segments are given back in parts, beside any number of other free blocks") {
    PoolOptions options = ranges(1);
    options.expandable = false;
    World world("segments", options);
    world.free_every(2, world.fill(many / 2, 8 * kib));
    world.free_every(2, world.fill(many / 4, 4 * mib));
    world.free_every(5, world.fill(2500, 12 * mib));
    world.measure_all();
}

TEST_CASE("segments are collected in parts") {
    PoolOptions options = ranges(1);
    options.expandable = false;
    options.garbage_collection_threshold = 0.01;
    World world("garbage", options);
    world.free_every(5, world.fill(2500, 12 * mib));
    world.measure("an allocation above the threshold", [&] { world.pool.allocate(40 * mib, 0); });
    CHECK(world.pool.stats().reserved_bytes.all.current < 2010 * 12 * std::int64_t{mib});
}

}  // namespace memlab::allocator::testing
