// A libnvidia-ml.so.1 of our own: says of each GPU that the processes of SIMNVML_PROCESSES run on
// it, "self:700,1:3072": process id, or self, and MiB, or "used": what the simulated driver has in
// use on GPU 0, which is in use on each GPU. Without the variable NVML does not start, as where
// there is no driver for it. A cgroup has the limits of SIMNVML_LIMITS,
// "/sys/fs/cgroup/a:8:512:64": its directory, its hard and soft limit, and what it uses, in MiB
// ("max": no limit); without the variable no limit is supported. Its calls hold a lock, and take
// SIMNVML_MILLISECONDS. It counts SIMNVML_GPUS (1); a process is on all of them, "12:700@1" on one.
// With SIMCUDA_SHARED it says of memory what the simulated driver does, of all processes.
// Where no simulated driver is loaded, a GPU's memory in use is what its processes have, and
// "unknown" for the MiB is what a driver does not tell.
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

int number_of(const void* device) {
    return static_cast<int>(static_cast<const int*>(device) - handles);
}

/// With SIMCUDA_SHARED: what all processes of the simulated driver have of the GPU.
bool by_all_processes(int gpu, Memory* memory) {
    void* const driver = std::getenv("SIMCUDA_SHARED") != nullptr
                             ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)
                             : nullptr;
    if (driver == nullptr) {
        return false;
    }
    const auto used = reinterpret_cast<unsigned long (*)(int, unsigned long*)>(
        dlsym(driver, "simcuda_used_by_all"));
    unsigned long total = 0;
    const unsigned long bytes = used != nullptr ? used(gpu, &total) : 0;
    *memory = {total, total - bytes, bytes};
    dlclose(driver);
    return used != nullptr && bytes <= total;
}

/// One process of SIMNVML_PROCESSES.
struct Listed {
    unsigned pid = 0;
    unsigned long long bytes = 0;
    bool here = true;            ///< on that GPU
    const char* next = nullptr;  ///< null: it is the last one
};

/// False: the text is none.
bool parse_listed(const char* at, int gpu, Listed* out) {
    const bool self = std::strncmp(at, "self", 4) == 0;
    const char* const colon = std::strchr(at, ':');
    if (colon == nullptr) {
        return false;
    }
    const char* const comma = std::strchr(colon, ',');
    const char* const place = std::strchr(colon, '@');
    out->pid = self ? static_cast<unsigned>(getpid())
                    : static_cast<unsigned>(std::strtoul(at, nullptr, 10));
    out->bytes = std::strncmp(colon + 1, "used", 4) == 0 ? used_bytes()
                 : std::strncmp(colon + 1, "unknown", 7) == 0
                     ? ~0ULL
                     : std::strtoull(colon + 1, nullptr, 10) << 20;
    out->here =
        place == nullptr || (comma != nullptr && place > comma) || std::atoi(place + 1) == gpu;
    out->next = comma == nullptr ? nullptr : comma + 1;
    return true;
}

/// What a GPU has in use: by the driver in this process, else by the processes that are listed.
unsigned long long gpu_used_bytes(const void* device) {
    unsigned long long bytes = used_bytes();
    const char* at = bytes != 0 ? nullptr : std::getenv("SIMNVML_PROCESSES");
    for (Listed listed; at != nullptr && *at != 0; at = listed.next) {
        if (!parse_listed(at, number_of(device), &listed)) {
            break;
        }
        bytes += listed.here && listed.bytes != ~0ULL ? listed.bytes : 0;
    }
    return bytes;
}

template <class Entry>
int list_processes(const void* device, unsigned* count, Entry* processes) {
    if (device == nullptr || count == nullptr) {
        return invalid_argument;
    }
    const Call call;
    unsigned found = 0;
    Listed listed;
    for (const char* at = std::getenv("SIMNVML_PROCESSES"); at != nullptr && *at != 0;
         at = listed.next) {
        if (!parse_listed(at, number_of(device), &listed)) {
            return invalid_argument;
        }
        if (!listed.here) {
            continue;
        }
        if (found < *count) {
            processes[found] = {};
            processes[found].pid = listed.pid;
            processes[found].used_bytes = listed.bytes;
        }
        ++found;
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

int nvmlDeviceGetCount_v2(unsigned* count) {
    if (!started) {
        return uninitialized;
    }
    const char* const text = std::getenv("SIMNVML_GPUS");
    *count = text == nullptr ? 1 : static_cast<unsigned>(std::atoi(text));
    return success;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    if (!started) {
        return uninitialized;
    }
    if (device == nullptr || index >= gpus) {
        return invalid_argument;
    }
    *device = &handles[index];
    return success;
}

int nvmlDeviceGetName(void* device, char* name, unsigned length) {
    if (device == nullptr || name == nullptr) {
        return invalid_argument;
    }
    return std::snprintf(name, length, "Simulated GPU") < static_cast<int>(length)
               ? success
               : insufficient_size;
}

int nvmlDeviceGetMinorNumber(void* device, unsigned* minor) {
    if (device == nullptr || minor == nullptr) {
        return invalid_argument;
    }
    *minor = static_cast<unsigned>(number_of(device));
    return success;
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
    return std::snprintf(version, length, "580.65.06") < static_cast<int>(length)
               ? success
               : insufficient_size;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
    if (device == nullptr || uuid == nullptr) {
        return invalid_argument;
    }
    return std::snprintf(uuid, length, "%s%02x", uuid_begin,
                         static_cast<unsigned>(number_of(device))) < static_cast<int>(length)
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
    if (by_all_processes(number_of(device), memory)) {
        return success;
    }
    const unsigned long long used = gpu_used_bytes(device) + reserved_bytes;
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
    const unsigned long long used = gpu_used_bytes(device);
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
