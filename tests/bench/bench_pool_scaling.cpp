// What a pair of allocation and free costs the host by the number of live blocks and by the number
// of threads, and how much host memory a block costs. No device: the backend answers at once, so
// this is the pool alone.
//   bench_pool_scaling [PAIRS]
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "allocator/pool.hpp"
#include "tests/support/counted_heap.hpp"
#include "tests/support/null_backend.hpp"
#include "tests/unit/allocator/random.hpp"

namespace memlab::allocator::testing {
namespace {

struct Row {
    double same_ns = 0;    ///< one size, the same block again and again
    double random_ns = 0;  ///< any live block is freed, another of any size got
    double bytes = 0;
};

/// Four in five below 4 KiB, the rest up to 64 KiB: what makes a million of them fit on a device.
std::uint64_t size_of(Random& random) {
    return 1 + random.below(random.one_in(5) ? 64 << 10 : 4 << 10);
}

constexpr int rounds = 5;

template <typename Work>
double nanoseconds_each(std::uint64_t times, Work work) {
    double best = 0;
    for (int round = 0; round < rounds; ++round) {
        const auto start = std::chrono::steady_clock::now();
        for (std::uint64_t i = 0; i < times; ++i) {
            work();
        }
        const std::chrono::duration<double, std::nano> took =
            std::chrono::steady_clock::now() - start;
        const double each = took.count() / static_cast<double>(times);
        best = round == 0 || each < best ? each : best;
    }
    return best;
}

Row measure(std::size_t live, std::uint64_t pairs, bool expandable) {
    std::vector<Address> held;
    held.reserve(live);
    Random random(live);
    NullBackend backend;
    PoolOptions options;
    options.expandable = expandable;
    const std::uint64_t before = test::host_bytes;
    Pool pool(options, backend, nullptr);
    while (held.size() < live) {
        held.push_back(pool.allocate(size_of(random), 0).block.address);
    }
    const auto replace = [&] {
        Address& address = held[random.below(held.size())];
        pool.free(address, 0);
        address = pool.allocate(size_of(random), 0).block.address;
    };
    Row row;
    row.random_ns = nanoseconds_each(pairs, replace);
    row.bytes = static_cast<double>(test::host_bytes - before) / static_cast<double>(live);
    row.same_ns =
        nanoseconds_each(pairs, [&] { pool.free(pool.allocate(1000, 0).block.address, 0); });
    return row;
}

double nanoseconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_usec) * 1e3;
}

struct SharedRow {
    double wall_ns = 0;  ///< from pair to pair, whoever makes it
    double processor_ns = 0;
    double sleeps = 0;  ///< in a thousand pairs
};

/// Threads that do nothing but get a block of 1 MiB and free it.
SharedRow measure_threads(unsigned count, std::uint64_t pairs) {
    NullBackend backend;
    PoolOptions options;
    options.expandable = true;
    Pool pool(options, backend, nullptr);
    const auto work = [&] {
        for (std::uint64_t i = 0; i < pairs / count; ++i) {
            pool.free(pool.allocate(1 << 20, 0).block.address, 0);
        }
    };
    const auto run_all = [&] {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < count; ++i) {
            threads.emplace_back(work);
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    };
    rusage before{};
    getrusage(RUSAGE_SELF, &before);
    SharedRow row;
    row.wall_ns = nanoseconds_each(1, run_all) / static_cast<double>(pairs);
    rusage after{};
    getrusage(RUSAGE_SELF, &after);
    const double all_pairs = rounds * static_cast<double>(pairs);
    row.processor_ns = (nanoseconds(after.ru_utime) + nanoseconds(after.ru_stime) -
                        nanoseconds(before.ru_utime) - nanoseconds(before.ru_stime)) /
                       all_pairs;
    row.sleeps = 1000 * static_cast<double>(after.ru_nvcsw - before.ru_nvcsw) / all_pairs;
    return row;
}

int run(std::uint64_t pairs) {
    for (const bool expandable : {false, true}) {
        std::printf("%s\n%12s %14s %14s %14s\n", expandable ? "expandable ranges" : "segments",
                    "live blocks", "same, ns/pair", "random, ns/pair", "bytes/block");
        for (std::size_t live = 100; live <= 1'000'000; live *= 10) {
            const Row row = measure(live, pairs, expandable);
            std::printf("%12zu %14.1f %14.1f %14.1f\n", live, row.same_ns, row.random_ns,
                        row.bytes);
        }
    }
    std::printf("one pool, 1 MiB\n%12s %14s %17s %17s\n", "threads", "ns/pair", "processor ns/pair",
                "sleeps/1000 pairs");
    for (const unsigned count : {1U, 2U, 4U, 8U, 16U}) {
        const SharedRow row = measure_threads(count, pairs);
        std::printf("%12u %14.1f %17.1f %17.2f\n", count, row.wall_ns, row.processor_ns,
                    row.sleeps);
    }
    return 0;
}

}  // namespace
}  // namespace memlab::allocator::testing

int main(int argc, char** argv) {
    const std::uint64_t pairs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200'000;
    return memlab::allocator::testing::run(pairs == 0 ? 1 : pairs);
}
