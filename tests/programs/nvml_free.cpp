// Looks by NVML at what is free, as a scheduler in the program does: what was freed is free again.
// Built twice: opens NVML, and is linked with it. Needs an NVML, and two GPUs; prints only
// relations that hold on each.
//
//   nvml_free         the answers before and after a free, in a thread and a handler too, and
//                     to calls that are wrong
//   nvml_free other   the same, and what is in use on the other GPU
//   nvml_free waits   frees, then lives for 0.7 seconds
//   nvml_free next    what RTLD_DEFAULT and RTLD_NEXT find; no CUDA
//
// Recorded: 1 device allocation of 64 MiB, 1 free.
#include <csignal>
#include <cstring>
#include <thread>

#include <dlfcn.h>
#include <unistd.h>

#include "tests/programs/program.hpp"

using namespace program;

// As <nvml.h> declares them.
extern "C" {
struct Memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};
struct MemoryV2 {
    unsigned version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
};
struct ProcessV1 {
    unsigned pid;
    unsigned long long used;
};
struct Process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance;
    unsigned compute_instance;
};

#define NVML_FUNCTIONS(DO)                                                    \
    DO(nvmlInit_v2, (void))                                                   \
    DO(nvmlDeviceGetHandleByUUID, (const char*, void**))                      \
    DO(nvmlDeviceGetMemoryInfo, (void*, Memory*))                             \
    DO(nvmlDeviceGetMemoryInfo_v2, (void*, MemoryV2*))                        \
    DO(nvmlDeviceGetComputeRunningProcesses, (void*, unsigned*, ProcessV1*))  \
    DO(nvmlDeviceGetComputeRunningProcesses_v2, (void*, unsigned*, Process*)) \
    DO(nvmlDeviceGetComputeRunningProcesses_v3, (void*, unsigned*, Process*))

#ifdef LINKED_WITH_NVML
#define DECLARE(name, parameters) int name parameters;
NVML_FUNCTIONS(DECLARE)
#endif
}

namespace {

constexpr std::size_t block_bytes = std::size_t{64} << 20;

#define MEMBER(name, parameters) int(*name) parameters = nullptr;
struct Nvml {
    NVML_FUNCTIONS(MEMBER)

    Nvml() {
#ifdef LINKED_WITH_NVML
#define SET(name, parameters) name = &::name;
#else
        void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (library == nullptr) {
            SAY("no NVML\n");
            _exit(4);
        }
#define SET(name, parameters) name = reinterpret_cast<int(*) parameters>(dlsym(library, #name));
#endif
        NVML_FUNCTIONS(SET)
    }
};

/// What NVML has in use, in each way that it tells.
struct Used {
    unsigned long long figures[5] = {};
};
const char* const ways[] = {"memory", "memory, version 2", "processes", "processes, version 2",
                            "processes, version 3"};

struct Program {
    Nvml nvml;
    void* gpus[2] = {};

    template <class Entry>
    static unsigned long long own(int (*list)(void*, unsigned*, Entry*), void* gpu) {
        Entry entries[16] = {};
        unsigned count = 16;
        return list(gpu, &count, entries) == 0 && count == 1 ? entries[0].used : 0;
    }

    Used used(void* gpu) const {
        Memory memory{};
        MemoryV2 second{};
        second.version = sizeof second | 2U << 24;
        if (nvml.nvmlDeviceGetMemoryInfo(gpu, &memory) != 0 ||
            nvml.nvmlDeviceGetMemoryInfo_v2(gpu, &second) != 0) {
            SAY("NVML does not answer\n");
        }
        if (memory.free + memory.used != memory.total ||
            second.free + second.used + second.reserved != second.total) {
            SAY("the parts are not the whole\n");
        }
        return {{memory.used, second.used, own(nvml.nvmlDeviceGetComputeRunningProcesses, gpu),
                 own(nvml.nvmlDeviceGetComputeRunningProcesses_v2, gpu),
                 own(nvml.nvmlDeviceGetComputeRunningProcesses_v3, gpu)}};
    }

    void compare(const char* what, const Used& before, const Used& after) const {
        for (std::size_t i = 0; i < std::size(ways); ++i) {
            SAY("%s, %s: %s\n", what, ways[i],
                before.figures[i] >= after.figures[i] + block_bytes ? "less" : "not less");
        }
    }
};

Program* the_program = nullptr;
Used in_handler;

void handle(int /*signal*/) {
    in_handler = the_program->used(the_program->gpus[0]);
}

/// The text that NVML has for this GPU.
void find_gpu(const Nvml& nvml, CUdevice device, void** gpu) {
    CUuuid uuid{};
    CHECK(cuDeviceGetUuid_v2(&uuid, device));
    char text[64] = "GPU-";
    for (int i = 0; i < 16; ++i) {
        const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        (void)std::snprintf(text + std::strlen(text), 4, "%s%02x", dash ? "-" : "",
                            static_cast<unsigned char>(uuid.bytes[i]));
    }
    SAY("GPU %d: %d\n", device, nvml.nvmlDeviceGetHandleByUUID(text, gpu));
}

int look_up() {
    for (void* handle : {RTLD_DEFAULT, RTLD_NEXT}) {
        SAY("%s\n", dlsym(handle, "nvmlDeviceGetMemoryInfo") != nullptr ? "found" : "null");
        SAY("%s\n", dlerror() != nullptr ? "an error" : "no error");
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::strcmp(argv[1], "next") == 0) {
        (void)look_up();
        const Nvml nvml;
        return look_up();
    }
    Program program;
    the_program = &program;
    SAY("starts: %d\n", program.nvml.nvmlInit_v2());
    SAY("before CUDA, of no GPU: %d\n", program.nvml.nvmlDeviceGetMemoryInfo(nullptr, nullptr));
    use_device();
    find_gpu(program.nvml, 0, &program.gpus[0]);
    find_gpu(program.nvml, 1, &program.gpus[1]);

    const CUdeviceptr block = allocate(block_bytes);
    const Used held = program.used(program.gpus[0]);
    const Used other_held = program.used(program.gpus[1]);
    release(block);
    if (argc == 2 && std::strcmp(argv[1], "waits") == 0) {
        usleep(700'000);
        return 0;
    }
    program.compare("freed", held, program.used(program.gpus[0]));
    std::thread([&] {
        program.compare("in a thread", held, program.used(program.gpus[0]));
    }).join();
    (void)std::signal(SIGUSR1, handle);
    (void)std::raise(SIGUSR1);
    program.compare("in a handler", held, in_handler);
    if (argc == 2 && std::strcmp(argv[1], "other") == 0) {
        program.compare("the other GPU", other_held, program.used(program.gpus[1]));
    }

    MemoryV2 wrong{};
    unsigned none = 0;
    SAY("wrong: %d %d %d %d\n", program.nvml.nvmlDeviceGetMemoryInfo(program.gpus[0], nullptr),
        program.nvml.nvmlDeviceGetMemoryInfo_v2(program.gpus[0], &wrong),
        program.nvml.nvmlDeviceGetComputeRunningProcesses_v3(program.gpus[0], nullptr, nullptr),
        program.nvml.nvmlDeviceGetComputeRunningProcesses_v3(program.gpus[0], &none, nullptr));
    SAY("processes: %u\n", none);
    return 0;
}
