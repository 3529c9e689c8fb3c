// Stream-ordered frees: streams are independent of each other, and no other work is ever ordered
// behind these frees.
#include <map>
#include <vector>

#include "tests/unit/allocator/fixture.hpp"

namespace memlab::allocator::testing {

namespace {

/// A backend with the segments of the simulated one, and per-stream fences that the test completes.
class Streams final : public DeviceBackend {
  public:
    explicit Streams(SimulatedBackend& memory) : memory_(memory) {}

    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override {
        return memory_.segment_alloc(bytes, address);
    }
    BackendStatus segment_free(Address address, std::uint64_t bytes) override {
        return memory_.segment_free(address, bytes);
    }
    /// Behind all streams.
    BackendStatus fence_record(Fence* fence) override { return fence_record_of(0, fence); }
    BackendStatus fence_record_in(StreamId stream, Fence* fence, bool* alone) override {
        *alone = can_record_alone;
        return can_record_alone ? fence_record_of(stream, fence) : fence_record(fence);
    }
    FenceState fence_query(Fence fence) override {
        ++queries;
        return done(fence) ? FenceState::complete : FenceState::pending;
    }
    BackendStatus fence_wait_device(Fence /*fence*/) override {
        ++device_waits;
        return {BackendStatus::Kind::error, 1};
    }
    BackendStatus fence_wait_host(Fence fence) override {
        waited.push_back(stream_of_[fence]);
        if (stream_of_[fence] == 0) {
            for (auto& [stream, upto] : done_upto_) {
                upto = fence;
            }
        }
        done_upto_[stream_of_[fence]] = fence;
        return {};
    }
    bool fence_needs_host_wait(Fence fence) override { return needs_wait && !done(fence); }
    void fence_release(Fence fence) override {
        released += stream_of_.erase(fence) == 1 ? 1 : 1000;
    }

    /// All work of the stream that was submitted until now is done.
    void finish(StreamId stream) { done_upto_[stream] = last_; }

    bool can_record_alone = true;
    bool needs_wait = false;
    int queries = 0;
    int device_waits = 0;
    int released = 0;
    int recorded = 0;
    std::vector<StreamId> waited;

  private:
    BackendStatus fence_record_of(StreamId stream, Fence* fence) {
        *fence = ++last_;
        ++recorded;
        stream_of_[*fence] = stream;
        done_upto_.try_emplace(stream, 0);
        return {};
    }
    bool done(Fence fence) { return done_upto_[stream_of_.at(fence)] >= fence; }

    SimulatedBackend& memory_;
    Fence last_ = 0;
    std::map<Fence, StreamId> stream_of_;
    std::map<StreamId, Fence> done_upto_;
};

struct Setup {
    explicit Setup(std::uint64_t total = 8 * gib)
        : memory(total), backend(memory), pool(PoolOptions{}, backend, nullptr) {}

    Address get(std::uint64_t bytes) {
        const AllocResult result = pool.allocate(bytes, 0);
        REQUIRE(result.status.ok());
        return result.block.address;
    }
    void give_in(StreamId stream, Address address) {
        REQUIRE(pool.free_in(stream, address, 0).kind == FreeResult::Kind::freed);
        REQUIRE(pool.validate() == sound);
    }
    std::int64_t pending() { return pool.stats().active.all.current; }

    SimulatedBackend memory;
    Streams backend;
    Pool pool;
};

}  // namespace

TEST_CASE("what one stream has freed is free when that stream is done, whatever others do") {
    Setup fixture;
    const Address a = fixture.get(30 * mib);
    const Address b = fixture.get(30 * mib);
    fixture.give_in(1, a);  // its stream never ends
    fixture.give_in(2, b);
    CHECK(fixture.pending() == 2);
    CHECK(fixture.get(30 * mib) != a);
    fixture.backend.finish(2);
    CHECK(fixture.get(30 * mib) == b);
    CHECK(fixture.backend.waited.empty());
    CHECK(fixture.backend.device_waits == 0);
}

TEST_CASE("a fence behind all work that is complete tells nothing of a younger one of a stream") {
    Setup fixture;
    const Address a = fixture.get(30 * mib);
    const Address b = fixture.get(30 * mib);
    const Address c = fixture.get(30 * mib);
    fixture.give_in(1, a);
    REQUIRE(fixture.pool.free(b, 0, FenceTiming::now_without_wait).kind == FreeResult::Kind::freed);
    fixture.give_in(1, c);
    fixture.backend.finish(0);
    CHECK(fixture.get(30 * mib) == b);
    CHECK(fixture.pending() == 3);
    CHECK(fixture.pool.validate() == sound);
}

TEST_CASE("a new stream with the name of one that is gone does not vouch for its work") {
    Setup fixture;
    const Address a = fixture.get(30 * mib);
    const Address b = fixture.get(30 * mib);
    fixture.give_in(1, a);
    fixture.pool.forget_stream(1);
    fixture.give_in(1, b);
    // Only the younger one's fence is complete: in one list it would stand for the older one's.
    fixture.backend.finish(0);
    CHECK(fixture.pool.validate() == sound);
    CHECK(fixture.pending() == 2);
}

TEST_CASE("short of memory nobody waits for what a stream has yet to free, nor is put behind it") {
    Setup fixture(100 * mib);
    const Address a = fixture.get(80 * mib);
    fixture.give_in(5, a);
    CHECK(fixture.pool.allocate(80 * mib, 0).status.kind == BackendStatus::Kind::out_of_memory);
    CHECK(fixture.pool.release_cached(true) == 0);
    CHECK(fixture.backend.device_waits == 0);
    CHECK(fixture.backend.waited.empty());
    fixture.backend.finish(5);
    CHECK(fixture.get(80 * mib) == a);
    CHECK(fixture.backend.released == fixture.backend.recorded);
}

TEST_CASE("many streams, and frees of each, are kept apart and all come back") {
    Setup fixture;
    std::vector<Address> blocks;
    blocks.reserve(2000);
    for (int i = 0; i < 2000; ++i) {
        blocks.push_back(fixture.get(1 * mib));
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        REQUIRE(fixture.pool.free_in(1 + i % 700, blocks[i], 0).kind == FreeResult::Kind::freed);
    }
    REQUIRE(fixture.pool.validate() == sound);
    for (StreamId stream = 0; stream <= 700; ++stream) {
        fixture.backend.finish(stream);
    }
    fixture.pool.release_cached(false);
    CHECK(fixture.pending() == 0);
    CHECK(fixture.backend.released == fixture.backend.recorded);
    CHECK(fixture.memory.used() == 0);
}

TEST_CASE("where the backend cannot record in a stream the fence is behind all work") {
    Setup fixture;
    fixture.backend.can_record_alone = false;
    const Address a = fixture.get(30 * mib);
    fixture.give_in(3, a);
    fixture.backend.finish(3);
    CHECK(fixture.get(30 * mib) != a);
    fixture.backend.finish(0);
    CHECK(fixture.get(30 * mib) == a);
}

TEST_CASE("a fence that only a wait completes is waited for, whatever the free's timing") {
    Setup fixture;
    fixture.backend.needs_wait = true;
    for (const bool in_a_stream : {false, true}) {
        const Address a = fixture.get(30 * mib);
        const FreeResult result = in_a_stream
                                      ? fixture.pool.free_in(3, a, 0)
                                      : fixture.pool.free(a, 0, FenceTiming::now_without_wait);
        CHECK(result.kind == FreeResult::Kind::freed);
        CHECK(fixture.pending() == 0);
    }
    CHECK(fixture.backend.waited.size() == 2);
}

TEST_CASE("copies may reach what was asked for, and what a stream has yet to free") {
    Setup fixture;
    using Reach = Pool::Reach;
    const Address a = fixture.get(1000);
    CHECK(fixture.pool.reach(a, 1000) == Reach::inside);
    CHECK(fixture.pool.reach(a + 999, 1) == Reach::inside);
    CHECK(fixture.pool.reach(a, 1001) == Reach::outside);
    CHECK(fixture.pool.reach(a + 1000, 1) == Reach::outside);
    CHECK(fixture.pool.reach(a + 500, ~std::uint64_t{0}) == Reach::outside);
    CHECK(fixture.pool.reach(a + 1024, 1) == Reach::outside);
    CHECK(fixture.pool.reach(0x1234, 1) == Reach::not_ours);
    fixture.give_in(1, a);
    CHECK(fixture.pool.reach(a, 1000) == Reach::inside);
    fixture.backend.finish(1);
    CHECK(fixture.pool.reach(a, 1000) == Reach::outside);
    fixture.pool.release_cached(false);
    CHECK(fixture.pool.reach(a, 1) == Reach::not_ours);
}

}  // namespace memlab::allocator::testing
