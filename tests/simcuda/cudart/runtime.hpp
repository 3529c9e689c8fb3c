// The inside of the simulated libcudart.so.13: a thin runtime over whatever libcuda.so.1 it finds.
//
// It reaches the driver as NVIDIA's does, so that an interposer sees the same path: at the first
// call it opens libcuda.so.1, takes cuGetProcAddress_v2 with dlsym, and resolves everything else
// through that, once with flags 0 and once with flags 2 (the per-thread-default-stream entry points
// behind the _ptsz and _ptds functions). It never links with the driver.
#pragma once

#include <cuda_runtime_api.h>

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>

namespace memlab::simcuda::cudart {

struct Driver {
#define DRIVER(base, symbol, version) decltype(&::symbol) base = nullptr;
#include "tests/simcuda/cudart/driver_functions.inc"
#undef DRIVER
};

enum Flavor { legacy = 0, per_thread = 1 };

// Opens the driver and initializes it, once. cudaErrorInsufficientDriver without one.
cudaError_t open_driver(Flavor flavor, const Driver*& driver);

// The same, and makes the primary context of the thread's device current if the thread has none.
cudaError_t enter(Flavor flavor, const Driver*& driver);

// The driver's cuGetProcAddress, for cudaGetDriverEntryPoint.
CUresult resolve_entry_point(const char* symbol, void** address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status);

// The runtime's device of the calling thread.
int thread_device();
cudaError_t set_thread_device(int device);
// Tells an attached tool of a call of the program's, for as long as it lasts.
class Announced {
  public:
    explicit Announced(const char* name);
    ~Announced();
    Announced(const Announced&) = delete;
    Announced& operator=(const Announced&) = delete;

  private:
    const char* const name_;
};

// The primary context must be retained again before it is used again.
void forget_primary(int device);

// Keeps an error for cudaGetLastError.
cudaError_t note(cudaError_t error);
cudaError_t last_error(bool clear);

// Runtime and driver number their errors alike.
inline cudaError_t convert(CUresult result) {
    return static_cast<cudaError_t>(result);
}

template <typename Function>
cudaError_t call(Flavor flavor, Function&& function) {
    const Driver* driver = nullptr;
    if (const cudaError_t error = enter(flavor, driver)) {
        return note(error);
    }
    return note(convert(static_cast<CUresult>(function(*driver))));
}

// The driver's object behind a kernel's host stub, a registered variable's address.
cudaError_t find_kernel(const Driver& driver, const void* host, CUkernel& kernel);
cudaError_t find_symbol(const Driver& driver, const void* host, CUdeviceptr& address,
                        size_t& bytes);
// Makes loaded images load again after a device reset.
void forget_images();

inline CUdeviceptr device_pointer(const void* pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace memlab::simcuda::cudart

// A runtime function of one name; `d` is the driver in the body.
#define RUNTIME(name, parameters, ...)                                          \
    cudaError_t name parameters {                                               \
        using namespace memlab::simcuda::cudart;                                \
        const Announced announced(#name);                                       \
        return call(legacy, [&]([[maybe_unused]] const Driver& d) __VA_ARGS__); \
    }

// And one that exists for each default stream: name and name_ptsz (or _ptds).
#define RUNTIME_PAIR(name, suffix, parameters, ...)                                 \
    RUNTIME(name, parameters, __VA_ARGS__)                                          \
    cudaError_t name##suffix parameters {                                           \
        using namespace memlab::simcuda::cudart;                                    \
        const Announced announced(#name);                                           \
        return call(per_thread, [&]([[maybe_unused]] const Driver& d) __VA_ARGS__); \
    }
