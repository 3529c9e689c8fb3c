// One of several processes that share a GPU. Does what its standard input says, a word a line, and
// answers each with a line:
//
//   take PERCENT    allocates as much of the device; "taken: RESULT in MILLISECONDS ms"
//   give            frees what it has taken
//   array PERCENT, context    the same by an array; a second context
//   capture, end    begins and ends the capture of a stream
//   used            "used: BYTES" of the simulated driver's memory, by this process
//   wakes           how often the other threads of the process have woken so far
#include <cuda.h>
#include <dirent.h>

#include <ctime>
#include <string>

#include "tests/programs/simulated.hpp"

using namespace program;

namespace {

double milliseconds() {
    timespec now{};
    (void)::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

std::size_t share_of_the_device(std::size_t percent) {
    std::size_t bytes = 0;
    CHECK(cuDeviceTotalMem(&bytes, 0));
    return bytes / 100 * percent;
}

CUresult take_array(std::size_t bytes) {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    shape.Width = 4096;
    shape.Height = 256;
    shape.Depth = bytes / (shape.Width * shape.Height * 16);
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 4;
    CUarray array = nullptr;
    return cuArray3DCreate(&array, &shape);
}

long wakes_of_other_threads() {
    long sum = 0;
    DIR* tasks = opendir("/proc/self/task");
    while (const dirent* entry = readdir(tasks)) {
        if (entry->d_name[0] == '.' || std::atoi(entry->d_name) == getpid()) {
            continue;
        }
        std::FILE* status =
            std::fopen((std::string("/proc/self/task/") + entry->d_name + "/status").c_str(), "r");
        char line[200];
        long count = 0;
        while (status != nullptr && std::fgets(line, sizeof line, status) != nullptr) {
            if (std::sscanf(line, "voluntary_ctxt_switches: %ld", &count) == 1) {
                sum += count;
            }
        }
        if (status != nullptr) {
            (void)std::fclose(status);
        }
    }
    (void)closedir(tasks);
    return sum;
}

}  // namespace

int main() {
    use_device();
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr taken = 0;
    SAY("ready\n");
    char line[100];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        char word[100] = "";
        std::size_t percent = 0;
        (void)std::sscanf(line, "%99s %zu", word, &percent);
        const std::string what = word;
        const double begin = milliseconds();
        if (what == "take" || what == "array" || what == "context") {
            CUcontext context = nullptr;
            const CUresult result = what == "take"
                                        ? cuMemAlloc(&taken, share_of_the_device(percent))
                                    : what == "array" ? take_array(share_of_the_device(percent))
                                                      : create_context(&context);
            SAY("taken: %d in %.1f ms\n", static_cast<int>(result), milliseconds() - begin);
        } else if (what == "give") {
            release(taken);
            taken = 0;
            SAY("given\n");
        } else if (what == "capture") {
            CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
            SAY("captures\n");
        } else if (what == "end") {
            CUgraph graph = nullptr;
            const CUresult result = cuStreamEndCapture(stream, &graph);
            SAY("captured: %d\n", static_cast<int>(result));
        } else if (what == "used") {
            SAY("used: %llu\n",
                static_cast<unsigned long long>(control<std::uint64_t()>("simcuda_used")()));
        } else if (what == "wakes") {
            SAY("wakes: %ld\n", wakes_of_other_threads());
        } else {
            return 2;
        }
    }
    return 0;
}
