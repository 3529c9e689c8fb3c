// Records by CUPTI what really reaches the driver, independently of memlab: the reference of the
// GPU suite.
//
// The driver loads this library itself when CUDA_INJECTION64_PATH names it, and calls
// InitializeInjection. It writes to the file named by WITNESS_OUTPUT ("%p" stands for the process
// id) what WITNESS_SEES names, separated by commas; "memory" when it is not set:
//
//   memory  a line per CUPTI MEMORY2 record:  alloc|free KIND ADDRESS BYTES ASYNC
//           KIND is CUPTI's number (3 is device memory), ADDRESS and BYTES are decimal, ASYNC is 1
//           for memory of the driver's own stream-ordered pools
//   pools   a line per CUPTI MEMORY_POOL record:  pool WHAT TYPE HANDLE SIZE THRESHOLD
//           WHAT is created, destroyed or trimmed, TYPE CUPTI's number (1 is this process's own),
//           SIZE what the pool has from the driver, in bytes
//   work    at the end what ran on the device:  work kernels|copies|peer_copies|fills COUNT
//   calls   at the end the driver functions that were called:  call NAME COUNT
//           Every ABI is a name of its own (cuMemAlloc_v2, cuLaunchKernel_ptsz). Seen are calls by
//           anyone but CUPTI, memlab's own included.
//
// The last line is "end"; one that begins with "failed" says what could not be seen.
//
// libcupti is opened at run time, so that nothing but this library needs it. All state is leaked:
// CUPTI may call back until the very end of the process.
#include <cupti.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

namespace {

int output = -1;
decltype(&cuptiActivityGetNextRecord) next_record;
decltype(&cuptiActivityFlushAll) flush_all;
decltype(&cuptiGetCallbackName) callback_name;

bool sees_work = false;
std::atomic<unsigned long long> kernels;
std::atomic<unsigned long long> copies;
std::atomic<unsigned long long> peer_copies;
std::atomic<unsigned long long> fills;

bool sees_calls = false;
constexpr CUpti_CallbackId function_count = CUPTI_DRIVER_TRACE_CBID_SIZE + 256;  // a newer driver's
std::atomic<unsigned long long> calls[function_count];

// One write(2) for each record: no buffer that a sudden end could lose.
void write_record(const CUpti_ActivityMemory4& record) {
    const bool alloc =
        record.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
    ::dprintf(output, "%s %d %llu %llu %u\n", alloc ? "alloc" : "free",
              static_cast<int>(record.memoryKind), static_cast<unsigned long long>(record.address),
              static_cast<unsigned long long>(record.bytes), record.isAsync);
}

void write_record(const CUpti_ActivityMemoryPool3& record) {
    constexpr const char* names[] = {"invalid", "created", "destroyed", "trimmed"};
    const auto what = static_cast<unsigned>(record.memoryPoolOperationType);
    ::dprintf(output, "pool %s %d %llu %llu %llu\n", names[what < std::size(names) ? what : 0],
              static_cast<int>(record.memoryPoolType),
              static_cast<unsigned long long>(record.address),
              static_cast<unsigned long long>(record.size),
              static_cast<unsigned long long>(record.releaseThreshold));
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
    constexpr std::size_t bytes = std::size_t{1} << 20;
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, bytes));
    *size = *buffer == nullptr ? 0 : bytes;
    *max_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid) {
    CUpti_Activity* record = nullptr;
    while (valid > 0 && next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
        switch (record->kind) {
            case CUPTI_ACTIVITY_KIND_MEMORY2:
                write_record(*reinterpret_cast<const CUpti_ActivityMemory4*>(record));
                break;
            case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
                write_record(*reinterpret_cast<const CUpti_ActivityMemoryPool3*>(record));
                break;
            case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
                ++kernels;
                break;
            case CUPTI_ACTIVITY_KIND_MEMCPY:
                ++copies;
                break;
            case CUPTI_ACTIVITY_KIND_MEMCPY2:
                ++peer_copies;
                break;
            case CUPTI_ACTIVITY_KIND_MEMSET:
                ++fills;
                break;
            default:
                break;
        }
    }
    std::free(buffer);
}

void CUPTIAPI count_call(void*, CUpti_CallbackDomain, CUpti_CallbackId function,
                         const CUpti_CallbackData* data) {
    if (data->callbackSite == CUPTI_API_ENTER && function < function_count) {
        calls[function].fetch_add(1, std::memory_order_relaxed);
    }
}

void write_sums() {
    if (sees_work) {
        ::dprintf(output, "work kernels %llu\nwork copies %llu\nwork peer_copies %llu\n",
                  kernels.load(), copies.load(), peer_copies.load());
        ::dprintf(output, "work fills %llu\n", fills.load());
    }
    for (CUpti_CallbackId function = 0; sees_calls && function < function_count; ++function) {
        const char* name = nullptr;
        if (calls[function] != 0 &&
            callback_name(CUPTI_CB_DOMAIN_DRIVER_API, function, &name) == CUPTI_SUCCESS) {
            ::dprintf(output, "call %s %llu\n", name, calls[function].load());
        }
    }
}

void flush_at_exit() {
    if (flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != CUPTI_SUCCESS) {
        ::dprintf(output, "failed: flush\n");
    }
    write_sums();
    ::dprintf(output, "end\n");
}

std::string output_path() {
    const char* pattern = std::getenv("WITNESS_OUTPUT");
    std::string path = pattern != nullptr ? pattern : "witness.%p.txt";
    const std::size_t place = path.find("%p");
    if (place != std::string::npos) {
        path.replace(place, 2, std::to_string(::getpid()));
    }
    return path;
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
}

bool wanted(const char* part) {
    const char* list = std::getenv("WITNESS_SEES");
    return ("," + std::string(list != nullptr ? list : "memory") + ",")
               .find("," + std::string(part) + ",") != std::string::npos;
}

/// What could not be switched on; null when all that is wanted is.
const char* watch_calls(void* cupti) {
    decltype(&cuptiSubscribe) subscribe = nullptr;
    decltype(&cuptiEnableDomain) enable_domain = nullptr;
    CUpti_SubscriberHandle subscriber = nullptr;
    if (!find(cupti, "cuptiSubscribe", subscribe) ||
        !find(cupti, "cuptiEnableDomain", enable_domain) ||
        !find(cupti, "cuptiGetCallbackName", callback_name)) {
        return "libcupti lacks a function";
    }
    if (subscribe(&subscriber, reinterpret_cast<CUpti_CallbackFunc>(count_call), nullptr) !=
        CUPTI_SUCCESS) {
        return "cuptiSubscribe";
    }
    return enable_domain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) == CUPTI_SUCCESS
               ? nullptr
               : "cuptiEnableDomain";
}

}  // namespace

/// Called by the driver while the program calls cuInit. Returns 1 for success.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
    output = ::open(output_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    const auto failed = [](const char* what) {
        ::dprintf(output >= 0 ? output : STDERR_FILENO, "failed: %s\n", what);
        return 0;
    };
    if (output < 0) {
        return failed("WITNESS_OUTPUT cannot be opened");
    }
    void* cupti = ::dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (cupti == nullptr) {
        return failed(::dlerror());
    }
    decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
    decltype(&cuptiActivityEnable) enable = nullptr;
    if (!find(cupti, "cuptiActivityRegisterCallbacks", register_callbacks) ||
        !find(cupti, "cuptiActivityEnable", enable) ||
        !find(cupti, "cuptiActivityGetNextRecord", next_record) ||
        !find(cupti, "cuptiActivityFlushAll", flush_all)) {
        return failed("libcupti lacks a function");
    }
    if (register_callbacks(give_buffer, take_buffer) != CUPTI_SUCCESS) {
        return failed("cuptiActivityRegisterCallbacks");
    }
    sees_work = wanted("work");
    sees_calls = wanted("calls");
    std::vector<CUpti_ActivityKind> kinds;
    if (wanted("memory")) {
        kinds.push_back(CUPTI_ACTIVITY_KIND_MEMORY2);
    }
    if (wanted("pools")) {
        kinds.push_back(CUPTI_ACTIVITY_KIND_MEMORY_POOL);
    }
    if (sees_work) {
        kinds.insert(kinds.end(),
                     {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                      CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET});
    }
    for (const CUpti_ActivityKind kind : kinds) {
        if (enable(kind) != CUPTI_SUCCESS) {
            return failed("cuptiActivityEnable");
        }
    }
    if (sees_calls) {
        if (const char* problem = watch_calls(cupti)) {
            return failed(problem);
        }
    }
    std::atexit(flush_at_exit);
    return 1;
}
