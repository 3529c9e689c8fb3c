// What the simulator's tests share: a primary context on device 0, and shorthands.
#pragma once

#include <cuda.h>

#include "tests/catch.hpp"
#include "tests/simcuda/simcuda.h"

namespace memlab::simcuda {

struct DriverFixture {
    DriverFixture() {
        REQUIRE(cuInit(0) == CUDA_SUCCESS);
        REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
        REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
        simcuda_forget_races();
    }
    ~DriverFixture() {
        cuDevicePrimaryCtxReset(0);
        cuCtxSetCurrent(nullptr);
    }
    DriverFixture(const DriverFixture&) = delete;
    DriverFixture& operator=(const DriverFixture&) = delete;

    static CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
        CUstream made = nullptr;
        REQUIRE(cuStreamCreate(&made, flags) == CUDA_SUCCESS);
        return made;
    }
    static CUevent event() {
        CUevent made = nullptr;
        REQUIRE(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
        return made;
    }
    static CUdeviceptr memory(size_t bytes) {
        CUdeviceptr made = 0;
        REQUIRE(cuMemAlloc(&made, bytes) == CUDA_SUCCESS);
        return made;
    }
    static unsigned char byte_at(CUdeviceptr address) {
        unsigned char value = 0;
        REQUIRE(cuMemcpyDtoH(&value, address, 1) == CUDA_SUCCESS);
        return value;
    }

    CUcontext context = nullptr;
};

}  // namespace memlab::simcuda
