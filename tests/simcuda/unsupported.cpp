// Every driver function that simcuda does not model: present, resolvable, and answering
// CUDA_ERROR_NOT_SUPPORTED. The definitions are weak; a file that models a function defines it
// strongly and wins at link time.
#include "tests/simcuda/driver_abi.hpp"

#pragma GCC diagnostic ignored "-Wunused-parameter"

extern "C" {
#define SIMCUDA_BODY(body, parameters, arguments)          \
    __attribute__((weak)) CUresult sim_##body parameters { \
        return CUDA_ERROR_NOT_SUPPORTED;                   \
    }
#include "tests/simcuda/driver_functions.inc"
#undef SIMCUDA_BODY
}
