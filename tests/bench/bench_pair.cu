// What a cudaMalloc and its cudaFree cost, alone, beside a kernel launch and from eight threads:
// without memlab, with it, and with parts of it switched off, in one run.
//
// The variants take turns (variants.hpp). Each child measures every line of the table in batches,
// on an idle GPU; what is printed is the median of all batches.
//
// Linked with the shared CUDA runtime.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "variants.hpp"

using memlab::bench::Clock;
using memlab::bench::median;
using memlab::bench::nanoseconds_since;
using memlab::bench::Variant;

namespace {

constexpr int turns = 3;
constexpr int batches = 21;

constexpr int threads = 8;

void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "bench_pair: %s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

__global__ void nothing(void* memory) {
    if (memory == nullptr) {
        __trap();
    }
}

template <std::size_t bytes>
void pair() {
    void* address = nullptr;
    check(cudaMalloc(&address, bytes));
    check(cudaFree(address));
}

template <std::size_t bytes>
void async_pair() {
    void* address = nullptr;
    check(cudaMallocAsync(&address, bytes, cudaStream_t{nullptr}));
    check(cudaFreeAsync(address, nullptr));
}

void launch() {
    static void* const memory = [] {
        void* address = nullptr;
        check(cudaMalloc(&address, 512));
        return address;
    }();
    nothing<<<1, 1>>>(memory);
}

void launch_and_pair() {
    void* address = nullptr;
    check(cudaMalloc(&address, std::size_t{1} << 20));
    nothing<<<1, 1>>>(address);
    check(cudaFree(address));
}

void launch_and_async_pair() {
    void* address = nullptr;
    check(cudaMallocAsync(&address, std::size_t{1} << 20, cudaStream_t{nullptr}));
    nothing<<<1, 1>>>(address);
    check(cudaFreeAsync(address, nullptr));
}

void once(void (*operation)(), int count) {
    for (int i = 0; i < count; ++i) {
        operation();
    }
}

// The time of one operation of one thread, when eight do it at the same time.
void by_threads(void (*operation)(), int count) {
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i) {
        running.emplace_back([operation, count] { once(operation, count / threads); });
    }
    for (std::thread& thread : running) {
        thread.join();
    }
}

struct Line {
    const char* name;
    void (*run)(void (*operation)(), int count);
    void (*operation)();
    int count;  ///< in one batch
};

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr Line lines[] = {
    {"cudaMalloc + cudaFree, 512 B", once, pair<512>, 400},
    {"cudaMalloc + cudaFree, 1 MiB", once, pair<mib>, 400},
    {"cudaMalloc + cudaFree, 20 MiB", once, pair<20 * mib>, 400},
    {"cudaMallocAsync + cudaFreeAsync, 1 MiB", once, async_pair<mib>, 400},
    {"kernel launch", once, launch, 400},
    {"kernel launch + cudaMalloc + cudaFree", once, launch_and_pair, 400},
    {"kernel launch + Async pair", once, launch_and_async_pair, 400},
    {"8 threads: cudaMalloc + cudaFree, 1 MiB", by_threads, pair<mib>, 8 * 800},
    {"8 threads: Async pair, 1 MiB", by_threads, async_pair<mib>, 8 * 800},
};

/// Prints "INDEX NANOSECONDS" per batch of a line of the table, nanoseconds for one operation.
void measure_line(std::size_t index, int count, int batch_count) {
    const Line& line = lines[index];
    line.run(line.operation, count);
    for (int batch = 0; batch < batch_count; ++batch) {
        check(cudaDeviceSynchronize());
        const Clock::time_point start = Clock::now();
        line.run(line.operation, count);
        std::printf("%zu %.1f\n", index, nanoseconds_since(start) / count);
    }
}

/// Child. Native cudaMalloc is slow: fewer operations tell as much.
int measure(bool native) {
    check(cudaFree(nullptr));
    for (std::size_t index = 0; index < std::size(lines); ++index) {
        measure_line(index, native ? lines[index].count / 8 : lines[index].count, batches);
    }
    return 0;
}

/// Child of bench_pair_builds.py: the whole table, in short batches, for each line of standard
/// input, and "end" behind it.
int measure_by_turns() {
    check(cudaFree(nullptr));
    for (int letter = std::getchar(); letter != EOF; letter = std::getchar()) {
        if (letter != '\n') {
            continue;
        }
        for (std::size_t index = 0; index < std::size(lines); ++index) {
            measure_line(index, lines[index].count / 4, 3);
        }
        std::puts("end");
        std::fflush(stdout);
    }
    return 0;
}

constexpr Variant variants[] = {
    {"native", false, ""},
    {"memlab", true, ""},
    {"depth 10", true, "MEMLAB_STACK_DEPTH=10 "},
    {"no stacks", true, "MEMLAB_STACK_DEPTH=0 "},
    {"pool only", true, "MEMLAB_RECORD=off "},
    {"... never", true, "MEMLAB_RECORD=off MEMLAB_FREE_SYNC=never "},
    {"... streams", true, "MEMLAB_RECORD=off MEMLAB_FREE_SYNC=never MEMLAB_ONE_STREAM=off "},
    {"... no clock", true, "MEMLAB_RECORD=off MEMLAB_WORK_CLOCK=off "},
    {"... classic", true, "MEMLAB_RECORD=off MEMLAB_BACKEND=classic "},
    {"cupti on", true, "MEMLAB_CUPTI=on "},
    {"kernels", true, "MEMLAB_KERNELS=on "},
};

}  // namespace

int main(int argc, char** argv) {
    if (argc >= 2 && std::strcmp(argv[1], "--measure") == 0) {
        return measure(argc == 3);
    }
    if (argc == 2 && std::strcmp(argv[1], "--turns") == 0) {
        return measure_by_turns();
    }
    if (argc == 2 && std::strcmp(argv[1], "--lines") == 0) {
        for (const Line& line : lines) {
            std::puts(line.name);
        }
        return 0;
    }
    std::map<std::size_t, std::vector<double>> times[std::size(variants)];
    const int failed = memlab::bench::measure_in_turns(
        "bench_pair", turns, variants,
        [](const Variant& variant) { return variant.preloaded ? "" : " native"; },
        [&](FILE* child, std::size_t variant) {
            std::size_t index = 0;
            double time = 0;
            while (std::fscanf(child, "%zu %lf", &index, &time) == 2) {
                times[variant][index].push_back(time);
            }
        });
    if (failed != 0) {
        return failed;
    }
    std::printf("%-42s", "one of them, median, us");
    for (const Variant& variant : variants) {
        std::printf(" %13s", variant.name);
    }
    std::printf(" %14s\n", "memlab/native");
    for (std::size_t index = 0; index < std::size(lines); ++index) {
        std::printf("%-42s", lines[index].name);
        for (auto& measured : times) {
            std::printf(" %13.3f", median(measured[index]) / 1000);
        }
        std::printf(" %14.3f\n", median(times[1][index]) / median(times[0][index]));
    }
    return 0;
}
