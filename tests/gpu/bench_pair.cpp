// What a cudaMalloc and its cudaFree cost, without and with memlab, in one run.
//
// The program starts itself as a child for every measurement, in turns without and with
// LD_PRELOAD=libmemlab.so, so that whatever drifts on the machine drifts for both. Each child
// measures every line of the table in batches; what is printed is the median of all batches. The
// launch lines keep the GPU busy: a free then has something to wait for.
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

/// Runs the child and adds what it measured to `times`. False when it failed.
bool run_child(const std::string& self, const std::string& preload, const std::string& folder,
               std::map<std::size_t, std::vector<double>>& times) {
    std::string command = "exec env -u LD_PRELOAD ";
    if (!preload.empty()) {
        command += "LD_PRELOAD='" + preload + "' MEMLAB_OUTPUT='" + folder + "/' ";
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
    std::map<std::size_t, std::vector<double>> native;
    std::map<std::size_t, std::vector<double>> under;
    bool good = true;
    for (int turn = 0; turn < turns && good; ++turn) {
        good = run_child(self, "", folder, native) && run_child(self, library, folder, under);
    }
    fs::remove_all(folder);
    if (!good) {
        std::fprintf(stderr, "bench_pair: a measurement failed\n");
        return 1;
    }
    std::printf("%-42s %12s %12s %8s\n", "one pair, median", "native us", "memlab us", "ratio");
    for (std::size_t index = 0; index < std::size(lines); ++index) {
        const double plain = median(native[index]) / 1000;
        const double with = median(under[index]) / 1000;
        std::printf("%-42s %12.3f %12.3f %8.3f\n", lines[index].name, plain, with, with / plain);
    }
    return 0;
}
