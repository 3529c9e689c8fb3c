// A witness of what really reaches the driver, independent of memlab: CUPTI's MEMORY2 records.
//
// The driver loads this library itself when CUDA_INJECTION64_PATH names it, and calls
// InitializeInjection. It writes a line per record to the file named by WITNESS_OUTPUT ("%p" stands
// for the process id):
//     alloc|free KIND ADDRESS BYTES ASYNC
// KIND is CUPTI's number (3 is device memory), ADDRESS and BYTES are decimal, ASYNC is 1 for memory
// of the driver's own stream-ordered pools.
//
// libcupti is opened at run time, so that nothing but this library needs it. All state is leaked:
// CUPTI may call back until the very end of the process.
#include <cupti.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

int output = -1;
decltype(&cuptiActivityGetNextRecord) next_record;
decltype(&cuptiActivityFlushAll) flush_all;

// One write(2) for each record: no buffer that a sudden end could lose.
void write_record(const CUpti_ActivityMemory4& record) {
    const bool alloc =
        record.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
    ::dprintf(output, "%s %d %llu %llu %u\n", alloc ? "alloc" : "free",
              static_cast<int>(record.memoryKind), static_cast<unsigned long long>(record.address),
              static_cast<unsigned long long>(record.bytes), record.isAsync);
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
        if (record->kind == CUPTI_ACTIVITY_KIND_MEMORY2) {
            write_record(*reinterpret_cast<const CUpti_ActivityMemory4*>(record));
        }
    }
    std::free(buffer);
}

void flush_at_exit() {
    if (flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != CUPTI_SUCCESS) {
        ::dprintf(output, "failed: flush\n");
    }
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
    if (enable(CUPTI_ACTIVITY_KIND_MEMORY2) != CUPTI_SUCCESS) {
        return failed("cuptiActivityEnable");
    }
    std::atexit(flush_at_exit);
    return 1;
}
