// What a cudaMalloc and its cudaFree cost, without memlab, with it, and with parts of it switched
// off, in one run.
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
#include <utility>
#include <vector>

namespace {

constexpr int turns = 5;
constexpr int batches = 21;

struct Line {
    const char* name;
    std::size_t bytes;
    bool async;
    int pairs;  ///< in one batch
};

constexpr Line lines[] = {
    {"cudaMalloc + cudaFree, 512 B", 512, false, 200},
    {"cudaMalloc + cudaFree, 1 MiB", std::size_t{1} << 20, false, 200},
    {"cudaMalloc + cudaFree, 20 MiB", std::size_t{20} << 20, false, 100},
    {"cudaMallocAsync + cudaFreeAsync, 1 MiB", std::size_t{1} << 20, true, 500},
};

void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "bench_pair: %s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

void pair(const Line& line) {
    void* address = nullptr;
    if (line.async) {
        check(cudaMallocAsync(&address, line.bytes, cudaStream_t{nullptr}));
        check(cudaFreeAsync(address, nullptr));
    } else {
        check(cudaMalloc(&address, line.bytes));
        check(cudaFree(address));
    }
}

/// Child: "INDEX NANOSECONDS" per batch on standard output, nanoseconds for one pair.
int measure() {
    using Clock = std::chrono::steady_clock;
    check(cudaFree(nullptr));
    for (std::size_t index = 0; index < std::size(lines); ++index) {
        const Line& line = lines[index];
        for (int i = 0; i < 20; ++i) {
            pair(line);
        }
        for (int batch = 0; batch < batches; ++batch) {
            check(cudaDeviceSynchronize());
            const Clock::time_point start = Clock::now();
            for (int i = 0; i < line.pairs; ++i) {
                pair(line);
            }
            const std::chrono::duration<double, std::nano> time = Clock::now() - start;
            std::printf("%zu %.1f\n", index, time.count() / line.pairs);
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
    {"no stacks", true, "MEMLAB_STACK_DEPTH=0 "},
    {"pool only", true, "MEMLAB_RECORD=off "},
};

/// Runs the child and adds what it measured to `times`. False when it failed.
bool run_child(const std::string& self, const Variant& variant, const std::string& library,
               const std::string& folder, std::map<std::size_t, std::vector<double>>& times) {
    std::string command = "exec env -u LD_PRELOAD ";
    if (variant.preloaded) {
        command += "LD_PRELOAD='" + library + "' MEMLAB_OUTPUT='" + folder + "/' ";
        command += variant.settings;
    }
    command += "'" + self + "' --measure";
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
    if (argc == 2 && std::strcmp(argv[1], "--measure") == 0) {
        return measure();
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
    std::printf("%-42s", "one pair, median, us");
    for (const Variant& variant : variants) {
        std::printf(" %10s", variant.name);
    }
    std::printf(" %14s\n", "memlab/native");
    for (std::size_t index = 0; index < std::size(lines); ++index) {
        std::printf("%-42s", lines[index].name);
        for (auto& measured : times) {
            std::printf(" %10.3f", median(measured[index]) / 1000);
        }
        std::printf(" %14.3f\n", median(times[1][index]) / median(times[0][index]));
    }
    return 0;
}
