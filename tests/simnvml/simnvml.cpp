// A libnvidia-ml.so.1 of our own: says of each GPU that the processes of SIMNVML_PROCESSES run on
// it, "self:700,1:3072": process id, or self, and MiB. Without the variable NVML does not start, as
// where there is no driver for it. Its calls hold a lock, and take SIMNVML_MILLISECONDS.
#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

struct Process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance;
    unsigned compute_instance;
};

constexpr int success = 0;
constexpr int uninitialized = 1;
constexpr int invalid_argument = 2;
constexpr int not_found = 6;
constexpr int insufficient_size = 7;
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

}  // namespace

extern "C" {

int nvmlInit_v2() {
    const Call call;
    started = std::getenv("SIMNVML_PROCESSES") != nullptr;
    return started ? success : 9;  // NVML_ERROR_DRIVER_NOT_LOADED
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
    static int gpu = 0;
    if (!started) {
        return uninitialized;
    }
    if (uuid == nullptr || device == nullptr) {
        return invalid_argument;
    }
    *device = &gpu;
    return std::strncmp(uuid, "GPU-", 4) == 0 ? success : not_found;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
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
            processes[found] = {self ? static_cast<unsigned>(getpid())
                                     : static_cast<unsigned>(std::strtoul(at, nullptr, 10)),
                                std::strtoull(colon + 1, nullptr, 10) << 20, 0, 0};
        }
        ++found;
        const char* const comma = std::strchr(colon, ',');
        at = comma == nullptr ? nullptr : comma + 1;
    }
    const bool fits = found <= *count;
    *count = found;
    return fits ? success : insufficient_size;
}
}
