// A libnvidia-ml.so.1 of our own: says of each GPU that the processes of SIMNVML_PROCESSES run on
// it, "self:700,1:3072": process id, or self, and MiB, or "used": what the simulated driver has in
// use on GPU 0, which is in use on each GPU. Without the variable NVML does not start, as where
// there is no driver for it. A cgroup has the limits of SIMNVML_LIMITS,
// "/sys/fs/cgroup/a:8:512:64": its directory, its hard and soft limit, and what it uses, in MiB
// ("max": no limit); without the variable no limit is supported. Its calls hold a lock, and take
// SIMNVML_MILLISECONDS.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct ProcessV1 {
    unsigned pid;
    unsigned long long used_bytes;
};

struct Process : ProcessV1 {
    unsigned gpu_instance;
    unsigned compute_instance;
};

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

struct MemoryLimits {
    const char* name_space;
    unsigned long long soft;
    unsigned long long hard;
    unsigned long long used;
};

constexpr int success = 0;
constexpr int uninitialized = 1;
constexpr int invalid_argument = 2;
constexpr int not_supported = 3;
constexpr int not_found = 6;
constexpr int insufficient_size = 7;
constexpr int version_mismatch = 25;  // NVML_ERROR_ARGUMENT_VERSION_MISMATCH
constexpr unsigned long long total_bytes = 1ULL << 40;
constexpr unsigned long long reserved_bytes = 1ULL << 29;
constexpr int gpus = 16;
int handles[gpus];
bool started = false;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

class Call {
  public:
    Call() {
        pthread_mutex_lock(&mutex);
        if (const char* const milliseconds = std::getenv("SIMNVML_MILLISECONDS")) {
            (void)usleep(1000 * static_cast<useconds_t>(std::atoi(milliseconds)));
        }
    }
    ~Call() { pthread_mutex_unlock(&mutex); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
};

unsigned long long used_bytes() {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == nullptr) {
        return 0;
    }
    const auto used = reinterpret_cast<unsigned long (*)()>(dlsym(driver, "simcuda_used"));
    const unsigned long long bytes = used != nullptr ? used() : 0;
    dlclose(driver);
    return bytes;
}

template <class Entry>
int list_processes(const void* device, unsigned* count, Entry* processes) {
    if (device == nullptr || count == nullptr) {
        return invalid_argument;
    }
    const Call call;
    unsigned found = 0;
    for (const char* at = std::getenv("SIMNVML_PROCESSES"); at != nullptr && *at != 0;) {
        const bool self = std::strncmp(at, "self", 4) == 0;
        const char* const colon = std::strchr(at, ':');
        if (colon == nullptr) {
            return invalid_argument;
        }
        if (found < *count) {
            processes[found] = {};
            processes[found].pid = self ? static_cast<unsigned>(getpid())
                                        : static_cast<unsigned>(std::strtoul(at, nullptr, 10));
            processes[found].used_bytes = std::strncmp(colon + 1, "used", 4) == 0
                                              ? used_bytes()
                                              : std::strtoull(colon + 1, nullptr, 10) << 20;
        }
        ++found;
        const char* const comma = std::strchr(colon, ',');
        at = comma == nullptr ? nullptr : comma + 1;
    }
    const bool fits = found <= *count;
    *count = found;
    return fits ? success : insufficient_size;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
    const Call call;
    started = std::getenv("SIMNVML_PROCESSES") != nullptr;
    return started ? success : 9;  // NVML_ERROR_DRIVER_NOT_LOADED
}

// As the simulated driver's: the GPU's number is the last byte.
constexpr char uuid_begin[] = "GPU-73696d63-7564-6100-0000-0000000000";

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
    if (!started) {
        return uninitialized;
    }
    if (uuid == nullptr || device == nullptr) {
        return invalid_argument;
    }
    if (std::strncmp(uuid, uuid_begin, sizeof uuid_begin - 1) != 0) {
        return not_found;
    }
    const unsigned long number = std::strtoul(uuid + sizeof uuid_begin - 1, nullptr, 16);
    if (number >= gpus) {
        return not_found;
    }
    *device = &handles[number];
    return success;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
    if (device == nullptr || uuid == nullptr) {
        return invalid_argument;
    }
    const auto number = static_cast<int>(static_cast<int*>(device) - handles);
    return std::snprintf(uuid, length, "%s%02x", uuid_begin, static_cast<unsigned>(number)) <
                   static_cast<int>(length)
               ? success
               : insufficient_size;
}

int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
    if (!started) {
        return uninitialized;
    }
    if (device == nullptr || memory == nullptr) {
        return invalid_argument;
    }
    const Call call;
    const unsigned long long used = used_bytes() + reserved_bytes;
    *memory = {total_bytes, total_bytes - used, used};
    return success;
}

int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
    if (!started) {
        return uninitialized;
    }
    if (device == nullptr || memory == nullptr) {
        return invalid_argument;
    }
    if (memory->version != (sizeof(MemoryV2) | 2U << 24)) {
        return version_mismatch;
    }
    const Call call;
    const unsigned long long used = used_bytes();
    *memory = {memory->version, total_bytes, reserved_bytes, total_bytes - used - reserved_bytes,
               used};
    return success;
}

int nvmlDeviceGetMemoryLimits_v1(void* device, MemoryLimits* limits) {
    if (!started) {
        return uninitialized;
    }
    if (device == nullptr || limits == nullptr || limits->name_space == nullptr) {
        return invalid_argument;
    }
    const Call call;
    const char* const text = std::getenv("SIMNVML_LIMITS");
    if (text == nullptr) {
        return not_supported;
    }
    const char* at = std::strchr(text, ':');
    const std::size_t length = std::strlen(limits->name_space);
    if (at == nullptr || length != static_cast<std::size_t>(at - text) ||
        std::strncmp(text, limits->name_space, length) != 0) {
        return not_found;
    }
    unsigned long long* const figures[] = {&limits->hard, &limits->soft, &limits->used};
    for (unsigned long long* const figure : figures) {
        if (at == nullptr) {
            return invalid_argument;
        }
        *figure =
            std::strncmp(at + 1, "max", 3) == 0 ? ~0ULL : std::strtoull(at + 1, nullptr, 10) << 20;
        at = std::strchr(at + 1, ':');
    }
    return success;
}

#define SIMNVML_LIST(function, Entry)                               \
    int function(void* device, unsigned* count, Entry* processes) { \
        return list_processes(device, count, processes);            \
    }
SIMNVML_LIST(nvmlDeviceGetComputeRunningProcesses, ProcessV1)
SIMNVML_LIST(nvmlDeviceGetComputeRunningProcesses_v2, Process)
SIMNVML_LIST(nvmlDeviceGetComputeRunningProcesses_v3, Process)
SIMNVML_LIST(nvmlDeviceGetGraphicsRunningProcesses, ProcessV1)
SIMNVML_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, Process)
SIMNVML_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, Process)
}
