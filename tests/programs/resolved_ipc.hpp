// cuIpcGetMemHandle, found when the program runs: memlab pools no memory for code that refers to
// it, and these programs are about pooled memory.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

namespace program {

inline CUresult get_mem_handle(CUipcMemHandle* handle, CUdeviceptr address) {
    using Function = CUresult(CUipcMemHandle*, CUdeviceptr);
    auto* const function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, "cuIpcGetMemHandle"));
    return function == nullptr ? CUDA_ERROR_NOT_FOUND : function(handle, address);
}

// What prints its call prints the driver's name.
#define cuIpcGetMemHandle ::program::get_mem_handle

}  // namespace program
