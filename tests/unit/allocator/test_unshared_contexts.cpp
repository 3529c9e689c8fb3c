// What is said to be free is available, on nearly full devices with several contexts, frees that
// wait for kernels, contexts that end and begin again, memory that bypasses the pools, and a limit
// below the device's memory. As memlab does, whoever is short has all pools of the device give back
// what is unused, waits for frees as cudaFree would have, and asks again.
//   MEMLAB_TEST_SEED=<seed> MEMLAB_TEST_RUNS=<programs> unit_allocator "contexts*"
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/plain_cuda.hpp"
#include "tests/support/thorough.hpp"
#include "tests/unit/allocator/fixture.hpp"
#include "tests/unit/allocator/random.hpp"
#include "tests/unit/allocator/replay.hpp"

namespace memlab::allocator::testing {
namespace {

using memlab::support::PlainCuda;

/// A device of which the program may have `limit` bytes.
class LimitedBackend final : public SimulatedBackend {
  public:
    LimitedBackend(std::uint64_t total, std::uint64_t limit)
        : SimulatedBackend(total), limit_(limit) {}

    std::uint64_t free_bytes() const { return limit_ - used(); }

    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override {
        return bytes > free_bytes() ? full : SimulatedBackend::segment_alloc(bytes, address);
    }
    BackendStatus pages_map(Address address, std::uint64_t bytes, std::uint64_t chunk) override {
        return bytes > free_bytes() ? full : SimulatedBackend::pages_map(address, bytes, chunk);
    }
    std::uint64_t total_memory() const override { return limit_; }
    std::uint64_t available_memory() const override { return free_bytes(); }

  private:
    static constexpr BackendStatus full{BackendStatus::Kind::out_of_memory, out_of_memory_code};
    const std::uint64_t limit_;
};

struct Context {
    Context(const PoolOptions& of_context, DeviceBackend& backend)
        : options(of_context), observer(options), pool(options, backend, &observer) {}

    PoolOptions options;
    CheckingObserver observer;
    Pool pool;
};

/// Plain CUDA's memory in several contexts of one device, which share no pages.
class PlainContexts {
  public:
    PlainContexts(std::uint64_t total, std::size_t contexts)
        : total_(total), contexts_(contexts, PlainCuda(total)) {}

    bool allocate(std::size_t context, std::uint64_t id, std::uint64_t bytes) {
        return fits(context, id, contexts_[context].allocate(id, bytes));
    }
    bool create(std::size_t context, std::uint64_t id, std::uint64_t bytes) {
        return fits(context, id, contexts_[context].create(id, bytes));
    }
    void free(std::size_t context, std::uint64_t id) { contexts_[context].free(id); }

    std::uint64_t free_bytes() const { return total_ - used(); }

  private:
    std::uint64_t used() const {
        std::uint64_t sum = 0;
        for (const PlainCuda& each : contexts_) {
            sum += total_ - each.free_bytes();
        }
        return sum;
    }
    bool fits(std::size_t context, std::uint64_t id, bool served) {
        if (served && used() > total_) {
            contexts_[context].free(id);
            return false;
        }
        return served;
    }

    const std::uint64_t total_;
    std::vector<PlainCuda> contexts_;
};

class SharedDevice {
  public:
    explicit SharedDevice(std::uint64_t seed)
        : random_(seed),
          limit_((1 + random_.below(3)) * gib),
          backend_(limit_ + random_.below(2) * gib, limit_),
          contexts_(1 + random_.below(4)),
          plain_(limit_, contexts_.size()) {
        options_.expandable = true;
        options_.packed_share = random_.one_in(4) ? 0 : 0.025;
        options_.trim_after_ns = 1000;
        options_.unmaps_per_hold = 1 + random_.below(8);
        options_.free_sync = random_.one_in(2) ? FreeSync::never : FreeSync::automatic;
        backend_.set_knows_idle(!random_.one_in(3));
        backend_.set_caller_needs_host_wait([this] { return relies_; });
        for (std::size_t i = 0; i < contexts_.size(); ++i) {
            begin_context(i);
        }
    }

    void run(int steps) {
        for (int i = 0; i < steps; ++i) {
            CAPTURE(i);
            step(i);
            if (i % 16 == 0) {
                compare();
            }
            if (i % 500 == 0) {
                check();
            }
        }
        check();
        for (std::size_t i = 0; i < contexts_.size(); ++i) {
            REQUIRE(problem_of_replay(contexts_[i]->options, contexts_[i]->observer.events(),
                                      limit_) == sound);
        }
    }

    std::uint64_t refused() const { return refused_; }
    std::uint64_t waited() const { return waited_; }

  private:
    struct Live {
        std::uint64_t id = 0;
        std::size_t context = 0;
        Address address = 0;
        std::uint64_t direct = 0;  ///< bytes that passed by the pools; else 0
    };

    void begin_context(std::size_t index) {
        // Only the first packs: the share is that of all of them.
        contexts_[index] =
            std::make_unique<Context>(options_of_context(options_, index == 0), backend_);
    }

    std::uint64_t free_bytes() {
        std::uint64_t sum = backend_.free_bytes();
        for (const auto& context : contexts_) {
            sum += context->pool.reclaimable();
        }
        return sum;
    }

    void step(int number) {
        if (number % 100 == 0) {
            kind_ = random_.below(6);
            keep_ = 1 + random_.below(40);
        }
        const std::uint64_t choice = random_.below(100);
        if (choice < 2) {
            std::vector<Live> kept;
            for (std::size_t at = 0; at < live_.size(); ++at) {
                if (at % keep_ == 0) {
                    kept.push_back(live_[at]);
                } else {
                    free(live_[at]);
                }
            }
            live_ = std::move(kept);
        } else if (choice < 4) {
            backend_.submit();
        } else if (choice < 6) {
            backend_.advance_to(backend_.completed() +
                                random_.below(1 + backend_.submitted() - backend_.completed()));
        } else if (choice < 10) {
            now_ += random_.below(800);
            contexts_[random_.below(contexts_.size())]->pool.tick(now_);
        } else if (choice == 10 && random_.one_in(8)) {
            end_context(random_.below(contexts_.size()));
        } else if (choice < 72 || live_.empty()) {
            allocate(one_size(), random_.one_in(20));
        } else {
            const std::size_t at = random_.below(live_.size());
            free(live_[at]);
            live_[at] = live_.back();
            live_.pop_back();
        }
    }

    std::uint64_t one_size() {
        switch (kind_) {
            case 0:
                return 1 + random_.below(2 * mib);
            case 1:
                return 2 * mib - 512 + random_.below(2) * 1024;
            case 2:
                return 1 + random_.below(20 * mib);
            case 3:
                return 64 * mib + random_.below(64 * mib);
            case 4:
                return 1 + random_.below(64 * kib);
            default:
                return (1 + random_.below(200)) * mib;
        }
    }

    Address try_allocate(std::size_t context, std::uint64_t bytes, std::uint64_t id, bool direct) {
        if (!direct) {
            const AllocResult result = contexts_[context]->pool.allocate(bytes, id);
            return result.status.ok() ? result.block.address : 0;
        }
        Address address = 0;
        return backend_.segment_alloc(bytes, &address).ok() ? address : 0;
    }

    void allocate(std::uint64_t bytes, bool direct) {
        const std::uint64_t pages = whole_pages(bytes);
        const std::uint64_t said = free_bytes();
        const std::uint64_t completed = backend_.completed();
        const std::size_t context = random_.below(contexts_.size());
        const std::uint64_t id = ++last_id_;
        const bool served_plain =
            direct ? plain_.create(context, id, pages) : plain_.allocate(context, id, bytes);
        Address address = try_allocate(context, direct ? pages : bytes, id, direct);
        if (address == 0) {
            for (const auto& each : contexts_) {
                each->pool.release_cached(true);
            }
            address = try_allocate(context, direct ? pages : bytes, id, direct);
        }
        // The host waited for frees at most, as cudaFree would have, and for nothing after them.
        REQUIRE(backend_.completed() <= std::max(completed, newest_free_));
        waited_ += backend_.completed() != completed ? 1 : 0;
        CAPTURE(bytes, direct, context, said, plain_.free_bytes(), limit_);
        if (address == 0) {
            ++refused_;
            REQUIRE(pages > said);
            if (served_plain) {
                REQUIRE(pages + limit_ * 3 / 100 > said);  // packed blocks pin as much
                plain_.free(context, id);
            }
            return;
        }
        const Live made{id, context, address, direct ? pages : 0};
        if (served_plain) {
            live_.push_back(made);
        } else {
            release(made);  // packed more densely: keep step
        }
    }

    void free(const Live& gone) {
        plain_.free(gone.context, gone.id);
        release(gone);
    }

    void release(const Live& gone) {
        if (gone.direct != 0) {
            REQUIRE(backend_.segment_free(gone.address, gone.direct).ok());
            return;
        }
        relies_ = random_.one_in(4);
        newest_free_ = backend_.submitted();
        const FenceTiming timing =
            random_.one_in(3) ? FenceTiming::now_without_wait : FenceTiming::now;
        REQUIRE(contexts_[gone.context]->pool.free(gone.address, 0, timing).kind ==
                FreeResult::Kind::freed);
    }

    /// Released for the last time, and retained again: what it had goes back to the device.
    void end_context(std::size_t index) {
        std::vector<Live> kept;
        for (const Live& each : live_) {
            if (each.context == index && each.direct == 0) {
                free(each);
            } else {
                kept.push_back(each);
            }
        }
        live_ = std::move(kept);
        Context& context = *contexts_[index];
        context.pool.release_cached(true);
        REQUIRE(context.pool.stats().reserved_bytes.all.current == 0);
        REQUIRE(context.pool.validate() == sound);
        begin_context(index);
    }

    void compare() {
        CAPTURE(free_bytes(), plain_.free_bytes(), limit_);
        REQUIRE(free_bytes() + limit_ * 3 / 100 >= plain_.free_bytes());
    }

    void check() const {
        for (const auto& context : contexts_) {
            REQUIRE(context->pool.validate() == sound);
            REQUIRE(context->observer.problems().empty());
            REQUIRE(context->observer.agrees(context->pool.stats()));
        }
        REQUIRE(backend_.problems().empty());
    }

    Random random_;
    const std::uint64_t limit_;
    LimitedBackend backend_;
    PoolOptions options_;
    std::vector<std::unique_ptr<Context>> contexts_;
    PlainContexts plain_;
    std::vector<Live> live_;
    std::uint64_t last_id_ = 0;
    std::uint64_t now_ = 0;
    std::uint64_t kind_ = 0;
    std::uint64_t keep_ = 1;
    std::uint64_t newest_free_ = 0;  ///< the work before it
    std::uint64_t refused_ = 0;
    std::uint64_t waited_ = 0;
    bool relies_ = false;
};

}  // namespace

TEST_CASE("contexts that share a nearly full device get what they were told is free") {
    const std::uint64_t first = setting("MEMLAB_TEST_SEED", 1);
    const std::uint64_t runs = setting("MEMLAB_TEST_RUNS", memlab::testing::thoroughly(1000, 40));
    std::uint64_t refused = 0;
    std::uint64_t waited = 0;
    for (std::uint64_t seed = first; seed < first + runs; ++seed) {
        CAPTURE(seed);
        SharedDevice program(seed);
        program.run(2000);
        refused += program.refused();
        waited += program.waited();
    }
    CHECK(refused > runs);
    CHECK(waited > runs);
}

}  // namespace memlab::allocator::testing
