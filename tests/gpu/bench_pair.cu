// What a cudaMalloc and its cudaFree cost, alone, beside a kernel launch and from eight threads:
// without memlab, with it, and with parts of it switched off, in one run.
//
// The program starts itself as a child for every measurement, the variants in turns, so that
// whatever drifts on the machine drifts for all. Each child measures every line of the table in
// batches, on an idle GPU; what is printed is the median of all batches.
//
// Linked with the shared CUDA runtime. The recording goes to a temporary folder that is removed.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

/// Child: "INDEX NANOSECONDS" per batch on standard output, nanoseconds for one operation. Native
/// cudaMalloc is slow: fewer operations tell as much.
int measure(bool native) {
    using Clock = std::chrono::steady_clock;
    check(cudaFree(nullptr));
    for (std::size_t index = 0; index < std::size(lines); ++index) {
        const Line& line = lines[index];
        const int count = native ? line.count / 8 : line.count;
        line.run(line.operation, count);
        for (int batch = 0; batch < batches; ++batch) {
            check(cudaDeviceSynchronize());
            const Clock::time_point start = Clock::now();
            line.run(line.operation, count);
            const std::chrono::duration<double, std::nano> time = Clock::now() - start;
            std::printf("%zu %.1f\n", index, time.count() / count);
        }
    }
    return 0;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

struct Variant {
    const char* name;
    bool preloaded;
    const char* settings;  ///< environment assignments
};

constexpr Variant variants[] = {
    {"native", false, ""},
    {"memlab", true, ""},
    {"depth 10", true, "MEMLAB_STACK_DEPTH=10 "},
    {"no stacks", true, "MEMLAB_STACK_DEPTH=0 "},
    {"pool only", true, "MEMLAB_RECORD=off "},
    {"... never", true, "MEMLAB_RECORD=off MEMLAB_FREE_SYNC=never "},
    {"... streams", true, "MEMLAB_RECORD=off MEMLAB_FREE_SYNC=never MEMLAB_ONE_STREAM=off "},
    {"... no clock", true, "MEMLAB_RECORD=off MEMLAB_WORK_CLOCK=off "},
    {"... vmm", true, "MEMLAB_RECORD=off MEMLAB_BACKEND=vmm "},
    {"cupti on", true, "MEMLAB_CUPTI=on "},
    {"kernels", true, "MEMLAB_KERNELS=on "},
};

/// Runs the child and adds what it measured to `times`. False when it failed.
bool run_child(const std::string& self, const Variant& variant, const std::string& library,
               const std::string& folder, std::map<std::size_t, std::vector<double>>& times) {
    std::string command = "exec env -u LD_PRELOAD ";
    if (variant.preloaded) {
        command += "LD_PRELOAD='" + library + "' MEMLAB_OUTPUT='" + folder + "/' ";
        command += variant.settings;
    }
    command += "'" + self + "' --measure" + (variant.preloaded ? "" : " native");
    FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) {
        return false;
    }
    std::size_t index = 0;
    double time = 0;
    while (std::fscanf(pipe, "%zu %lf", &index, &time) == 2) {
        times[index].push_back(time);
    }
    return ::pclose(pipe) == 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc >= 2 && std::strcmp(argv[1], "--measure") == 0) {
        return measure(argc == 3);
    }
    namespace fs = std::filesystem;
    const fs::path self = fs::read_symlink("/proc/self/exe");
    const fs::path library = self.parent_path().parent_path() / "lib" / "libmemlab.so";
    if (!fs::exists(library)) {
        std::fprintf(stderr, "bench_pair: %s is missing: build the project first\n",
                     library.c_str());
        return 2;
    }
    std::string folder = (fs::temp_directory_path() / "memlab-bench.XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) {
        std::fprintf(stderr, "bench_pair: no temporary folder: %s\n", std::strerror(errno));
        return 2;
    }
    std::map<std::size_t, std::vector<double>> times[std::size(variants)];
    bool good = true;
    for (int turn = 0; turn < turns && good; ++turn) {
        for (std::size_t v = 0; v < std::size(variants) && good; ++v) {
            good = run_child(self, variants[v], library, folder, times[v]);
        }
    }
    fs::remove_all(folder);
    if (!good) {
        std::fprintf(stderr, "bench_pair: a measurement failed\n");
        return 1;
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
