// What a pair of allocation and free costs the host by the number of live blocks, and how much host
// memory a block costs. No device: the backend answers at once, so this is the pool alone.
//   bench_pool_scaling [PAIRS]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

template <typename Work>
double nanoseconds_each(std::uint64_t times, Work work) {
    double best = 0;
    for (int round = 0; round < 5; ++round) {
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
    return 0;
}

}  // namespace
}  // namespace memlab::allocator::testing

int main(int argc, char** argv) {
    const std::uint64_t pairs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200'000;
    return memlab::allocator::testing::run(pairs == 0 ? 1 : pairs);
}
