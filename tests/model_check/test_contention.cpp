// Contention between real threads: eight workers on one pool or on several, frees by other threads
// than the allocating one, and concurrently calls that empty the cache, tick, read the statistics
// or lose the context. Intended for ThreadSanitizer. The scheduling is random, all else from the
// seed:
//   MEMLAB_TEST_SEED=<seed> MEMLAB_TEST_RUNS=<seeds> model_check_contention
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/allocator/random_program.hpp"

namespace memlab::model_check {

namespace {

using namespace allocator;
using allocator::testing::CheckingObserver;
using allocator::testing::mib;
using allocator::testing::Random;
using allocator::testing::setting;
using allocator::testing::sound;

constexpr std::size_t workers = 8;

/// A shadow map of memory ownership: each owner writes its block's id into marks all over the block
/// and checks them.
class Owners {
  public:
    /// False when somebody else holds some of it.
    bool take(const BlockInfo& block) { return exchange(block, 0, block.id); }
    bool leave(const BlockInfo& block) { return exchange(block, block.id, 0); }

  private:
    static constexpr std::uint64_t granule = 512;
    static constexpr std::uint64_t marks_per_block = 8;
    static constexpr std::uint64_t span = 16 * allocator::testing::gib;

    bool exchange(const BlockInfo& block, std::uint64_t from, std::uint64_t to) {
        bool right = true;
        const std::uint64_t first = (block.address - SimulatedBackend::default_base) / granule;
        const std::uint64_t count = block.size / granule;
        if (first + count > span / granule) {
            return true;  // addresses of many lost contexts: too many to watch
        }
        for (std::uint64_t i = 0; i < marks_per_block; ++i) {
            // The first and the last granule among them; small blocks have fewer.
            const std::uint64_t at = i * (count - 1) / (marks_per_block - 1);
            if (i == 0 || at != (i - 1) * (count - 1) / (marks_per_block - 1)) {
                right = marks_[first + at].exchange(to) == from && right;
            }
        }
        return right;
    }

    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    // Zero pages are allocated on access only: address ranges are mostly empty.
    std::unique_ptr<std::atomic<std::uint64_t>[], Free> marks_ {
        static_cast<std::atomic<std::uint64_t>*>(
            std::calloc(span / granule, sizeof(std::atomic<std::uint64_t>)))
    };
};

struct Site {
    Site(std::uint64_t total, const PoolOptions& options, bool contexts_are_lost)
        : contexts_lost(contexts_are_lost),
          backend(contexts_are_lost ? 64 * total : total),
          observer(options),
          pool(options, backend, contexts_are_lost ? nullptr : &observer) {
        backend.set_host_wait(SimulatedBackend::HostWait::blocks);
    }

    const bool contexts_lost;
    Owners owners;
    SimulatedBackend backend;
    CheckingObserver observer;
    Pool pool;
};

struct Held {
    Site* site = nullptr;
    BlockInfo block;
};

/// Blocks handed over to another worker to free.
class Mailbox {
  public:
    std::optional<Held> exchange(std::optional<Held> held) {
        const std::lock_guard lock(mutex_);
        std::swap(held, held_);
        return held;
    }

  private:
    std::mutex mutex_;
    std::optional<Held> held_;
};

struct Stress {
    std::vector<std::unique_ptr<Site>> sites;
    std::array<Mailbox, 4> mailboxes;
    std::atomic<bool> stop{false};
    std::atomic<bool> stop_disturbing{false};
    std::atomic<const char*> problem{nullptr};
    std::atomic<std::uint64_t> served{0};
    bool plant = false;  ///< owners leave their memory after they freed it

    void found(const char* text) {
        const char* none = nullptr;
        problem.compare_exchange_strong(none, text);
    }

    void free(Random& random, const Held& held) {
        Site& site = *held.site;
        if (!plant && !site.owners.leave(held.block)) {
            found("a block was overwritten");
        }
        const FenceTiming timing = random.one_in(16)  ? FenceTiming::deferred
                                   : random.one_in(8) ? FenceTiming::now_without_wait
                                                      : FenceTiming::now;
        const FreeResult result = site.pool.free(held.block.address, 0, timing);
        if (plant) {
            // Until others had the occasion.
            const std::uint64_t before = served.load();
            for (int i = 0; i < 1000 && served.load() < before + 4; ++i) {
                std::this_thread::yield();
            }
            if (!site.owners.leave(held.block)) {
                found("a block was overwritten");
            }
        }
        if (!site.contexts_lost &&
            (result.kind != FreeResult::Kind::freed || !result.status.ok())) {
            found("a live block could not be freed");
        }
    }

    void allocate(Random& random, Site& site, std::vector<Held>& held) {
        const AllocResult result = site.pool.allocate(testing_size(random), random.next());
        if (!result.status.ok()) {
            if (result.status.kind != BackendStatus::Kind::out_of_memory) {
                found("an allocation failed with an error");
            }
            return;
        }
        served.fetch_add(1);
        if (!site.owners.take(result.block)) {
            found("a block was handed out that somebody holds");
        }
        site.backend.access(result.block.id, result.block.address, result.block.size);
        held.push_back({&site, result.block});
    }

    static std::uint64_t testing_size(Random& random) {
        return allocator::testing::random_size(random);
    }

    void work(std::uint64_t seed, int steps) {
        Random random(seed);
        std::vector<Held> held;
        for (int i = 0; i < steps && problem.load() == nullptr; ++i) {
            const std::uint64_t choice = random.below(32);
            if (choice < 15) {
                allocate(random, *sites[random.below(sites.size())], held);
            } else if (choice < 26) {
                if (!held.empty()) {
                    const std::size_t index = random.below(held.size());
                    free(random, std::exchange(held[index], held.back()));
                    held.pop_back();
                }
            } else if (choice < 30) {
                std::optional<Held> mine;
                if (!held.empty()) {
                    mine = held.back();
                    held.pop_back();
                }
                mine = mailboxes[random.below(mailboxes.size())].exchange(mine);
                if (mine) {
                    free(random, *mine);
                }
            } else if (!held.empty()) {
                const Held& one = held[random.below(held.size())];
                const auto found_block =
                    one.site->pool.find(one.block.address + one.block.size - 1);
                if (!one.site->contexts_lost && (!found_block || found_block->id != one.block.id ||
                                                 !one.site->pool.owns(one.block.address))) {
                    found("a live block was not found");
                }
            }
        }
        for (const Held& one : held) {
            free(random, one);
        }
    }

    /// Other callers of a pool: an option's timer, a report, memlab_empty_cache().
    void disturb(std::uint64_t seed) {
        Random random(seed);
        std::uint64_t now_ns = 0;
        while (!stop_disturbing.load()) {
            Site& site = *sites[random.below(sites.size())];
            switch (random.below(8)) {
                case 0:
                    site.pool.release_cached(random.one_in(2));
                    break;
                case 1:
                case 2:
                    site.pool.tick(now_ns += random.below(2000));
                    break;
                case 3:
                case 4:
                    site.pool.fence_deferred();
                    break;
                case 5:
                    if (site.pool.stats().reserved_bytes.all.current < 0) {
                        found("less than nothing is reserved");
                    }
                    break;
                case 6:
                    if (!site.pool.validate().empty()) {
                        found("the pool is not sound while others use it");
                    }
                    break;
                default:
                    if (site.contexts_lost && random.one_in(8)) {
                        site.pool.abandon();
                    }
                    break;
            }
            std::this_thread::yield();
        }
    }

    /// The devices go on.
    void run_devices() {
        while (!stop.load()) {
            for (const auto& site : sites) {
                site->backend.advance_to(site->backend.completed() + 3);
            }
            std::this_thread::yield();
        }
    }

    std::string end(Site& site) {
        site.pool.fence_deferred();
        site.pool.release_cached(true);
        if (std::string problem = site.pool.validate(); !problem.empty()) {
            return problem;
        }
        if (const auto problems = site.backend.problems(); !problems.empty()) {
            return problems.front();
        }
        if (site.pool.stats().reserved_bytes.all.current != 0) {
            return "memory was not given back";
        }
        if (site.contexts_lost) {
            return {};
        }
        if (!site.observer.problems().empty()) {
            return site.observer.problems().front();
        }
        if (!site.observer.agrees(site.pool.stats())) {
            return "the statistics differ from the events";
        }
        return site.backend.fences() == 0 ? "" : "fences were not released";
    }

    std::string run(std::uint64_t seed, int steps) {
        std::thread devices([this] { run_devices(); });
        std::thread disturber([this, seed] { disturb(seed); });
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < workers; ++i) {
            threads.emplace_back([this, seed, steps, i] { work(seed * workers + i, steps); });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        Random random(seed);
        for (Mailbox& mailbox : mailboxes) {
            if (const std::optional<Held> left = mailbox.exchange({})) {
                free(random, *left);
            }
        }
        std::string result;
        if (problem.load() != nullptr) {
            result = problem.load();
        }
        stop_disturbing.store(true);
        disturber.join();
        for (const auto& site : sites) {
            if (result.empty()) {
                result = end(*site);
            }
        }
        stop.store(true);
        devices.join();
        return result;
    }
};

#ifdef NDEBUG
constexpr int usual_steps = 400;
#else
constexpr int usual_steps = 150;
#endif

void stress_all(std::size_t pools, bool contexts_lost) {
    const std::uint64_t first = setting("MEMLAB_TEST_SEED", 1);
    const std::uint64_t runs = setting("MEMLAB_TEST_RUNS", 12);
    std::uint64_t served = 0;
    for (std::uint64_t seed = first; seed < first + runs; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        Stress stress;
        for (std::size_t i = 0; i < pools; ++i) {
            PoolOptions options = allocator::testing::random_options(random);
            stress.sites.push_back(
                std::make_unique<Site>((24 + random.below(60)) * 2 * mib, options, contexts_lost));
        }
        REQUIRE(stress.run(seed, usual_steps) == sound);
        served += stress.served.load();
    }
    CHECK(served > runs * 100);
}

}  // namespace

TEST_CASE("eight threads share a pool, and somebody empties it") {
    stress_all(1, false);
}

TEST_CASE("eight threads share three pools") {
    stress_all(3, false);
}

TEST_CASE("eight threads share pools whose contexts are lost") {
    stress_all(2, true);
}

TEST_CASE("owners who go on using what they freed are noticed") {
    bool noticed = false;
    for (std::uint64_t seed = 1; seed <= 20 && !noticed; ++seed) {
        Stress stress;
        stress.plant = true;
        stress.sites.push_back(
            std::make_unique<Site>(64 * mib, allocator::testing::with(FreeSync::never), false));
        noticed = !stress.run(seed, usual_steps).empty();
    }
    CHECK(noticed);
}

}  // namespace memlab::model_check
