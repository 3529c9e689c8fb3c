// What the test programs share. They are programs of a user's kind: they know CUDA and nothing of
// memlab. Their output is deterministic and written with write(2) at once, so that it is complete
// however the program ends.
#pragma once

#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

// As <cuda.h> declares it, but weak; and the ABI of older drivers.
extern "C" {
__attribute__((weak)) CUresult CUDAAPI cuCtxCreate(CUcontext*, CUctxCreateParams*, unsigned,
                                                   CUdevice);
CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);
}

namespace program {

/// Creates a context, by the newest function that the driver has.
inline CUresult create_context(CUcontext* context, CUdevice device = 0) {
    return cuCtxCreate != nullptr ? cuCtxCreate(context, nullptr, 0, device)
                                  : cuCtxCreate_v2(context, 0, device);
}

/// printf to standard output, unbuffered.
#define SAY(...) ((void)::dprintf(STDOUT_FILENO, __VA_ARGS__))

/// Ends the program with exit code 3 and one line when a driver call failed that must not fail.
inline void check(CUresult result, const char* call, int line) {
    if (result != CUDA_SUCCESS) {
        const char* name = "?";
        (void)cuGetErrorName(result, &name);
        ::dprintf(STDERR_FILENO, "line %d: %s returned %d (%s)\n", line, call,
                  static_cast<int>(result), name);
        ::_exit(3);
    }
}
#define CHECK(call) ::program::check((call), #call, __LINE__)

/// Starts CUDA and makes the primary context of the device of that number current.
inline CUcontext use_device(int number = 0) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, number));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    return context;
}

/// Bytes, in whole pages of 2 MiB, of so many tenths of what is free on the current device.
inline std::size_t tenths_of_the_device(std::size_t tenths) {
    constexpr std::size_t page = std::size_t{2} << 20;
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    CHECK(cuMemGetInfo(&free_bytes, &total));
    return free_bytes / 10 * tenths / page * page;
}

/// Of an allocation that fits on the current device once.
inline std::size_t most_of_the_device() {
    return tenths_of_the_device(7);
}

/// Not inlined: each program's call sites stay recognizable in the report.
[[gnu::noinline]] inline CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc(&address, bytes));
    return address;
}

[[gnu::noinline]] inline void release(CUdeviceptr address) {
    CHECK(cuMemFree(address));
}

/// Whether each byte of device memory has the value.
inline bool all_bytes_are(CUdeviceptr address, std::size_t bytes, unsigned char value) {
    std::vector<unsigned char> seen(bytes);
    CHECK(cuMemcpyDtoH(seen.data(), address, bytes));
    return std::all_of(seen.begin(), seen.end(),
                       [value](unsigned char byte) { return byte == value; });
}

}  // namespace program
