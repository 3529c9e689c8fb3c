#include "tests/simcuda/cudart/runtime.hpp"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

#include "tests/simcuda/tool.h"

namespace memlab::simcuda::cudart {
namespace {

using GetProcAddress = decltype(&cuGetProcAddress_v2);

constexpr int max_devices = 64;

struct State {
    std::mutex mutex;
    bool opened = false;
    cudaError_t open_result = cudaSuccess;
    GetProcAddress get_proc_address = nullptr;
    std::atomic<decltype(&simcuda_runtime_call)> tell_tool = nullptr;
    Driver drivers[2];
    CUcontext primary[max_devices] = {};
};

State& state() {
    static State& once = *new State;
    return once;
}

thread_local int device_of_thread = 0;
thread_local cudaError_t error_of_thread = cudaSuccess;

void resolve(GetProcAddress get, cuuint64_t flags, Driver& driver) {
    const auto look_up = [&](const char* name, int version) {
        void* address = nullptr;
        CUdriverProcAddressQueryResult status{};
        get(name, &address, version, flags, &status);
        return address;
    };
#define DRIVER(base, symbol, version) \
    driver.base = reinterpret_cast<decltype(&::symbol)>(look_up(#base, version));
#include "tests/simcuda/cudart/driver_functions.inc"
#undef DRIVER
}

cudaError_t open() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
        return cudaErrorInsufficientDriver;
    }
    const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
    if (get == nullptr) {
        return cudaErrorInsufficientDriver;
    }
    state().get_proc_address = get;
    state().tell_tool =
        reinterpret_cast<decltype(&simcuda_runtime_call)>(dlsym(library, "simcuda_runtime_call"));
    resolve(get, CU_GET_PROC_ADDRESS_DEFAULT, state().drivers[legacy]);
    resolve(get, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, state().drivers[per_thread]);
    return convert(state().drivers[legacy].cuInit(0));
}

}  // namespace

Announced::Announced(const char* name) : name_(name) {
    if (const auto tell = state().tell_tool.load()) {
        tell(name_, 1);
    }
}

Announced::~Announced() {
    if (const auto tell = state().tell_tool.load()) {
        tell(name_, 0);
    }
}

cudaError_t open_driver(Flavor flavor, const Driver*& driver) {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    if (!all.opened) {
        all.open_result = open();
        all.opened = true;
    }
    driver = &all.drivers[flavor];
    return all.open_result;
}

cudaError_t enter(Flavor flavor, const Driver*& driver) {
    if (const cudaError_t error = open_driver(flavor, driver)) {
        return error;
    }
    CUcontext current = nullptr;
    if (const CUresult result = driver->cuCtxGetCurrent(&current)) {
        return convert(result);
    }
    State& all = state();
    const std::lock_guard lock(all.mutex);
    CUcontext& primary = all.primary[device_of_thread];
    // A context of the program's own, or the primary one that is alive: used as it is.
    unsigned flags = 0;
    if (current != nullptr && driver->cuCtxGetFlags(&flags) == CUDA_SUCCESS) {
        return cudaSuccess;
    }
    if (primary == nullptr) {
        if (const CUresult result = driver->cuDevicePrimaryCtxRetain(&primary, device_of_thread)) {
            primary = nullptr;
            return convert(result);
        }
    }
    return convert(driver->cuCtxSetCurrent(primary));
}

CUresult resolve_entry_point(const char* symbol, void** address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
    return state().get_proc_address(symbol, address, version, flags, status);
}

int thread_device() {
    return device_of_thread;
}

cudaError_t set_thread_device(int device) {
    const Driver* driver = nullptr;
    if (const cudaError_t error = open_driver(legacy, driver)) {
        return error;
    }
    int count = 0;
    driver->cuDeviceGetCount(&count);
    if (device < 0 || device >= count) {
        return cudaErrorInvalidDevice;
    }
    device_of_thread = device;
    State& all = state();
    const std::lock_guard lock(all.mutex);
    CUcontext& primary = all.primary[device];
    if (primary == nullptr) {
        if (const CUresult result = driver->cuDevicePrimaryCtxRetain(&primary, device)) {
            primary = nullptr;
            return convert(result);
        }
    }
    return convert(driver->cuCtxSetCurrent(primary));
}

void forget_primary(int device) {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    all.primary[device] = nullptr;
}

cudaError_t note(cudaError_t error) {
    if (error != cudaSuccess) {
        error_of_thread = error;
    }
    return error;
}

cudaError_t last_error(bool clear) {
    const cudaError_t error = error_of_thread;
    if (clear) {
        error_of_thread = cudaSuccess;
    }
    return error;
}

}  // namespace memlab::simcuda::cudart
