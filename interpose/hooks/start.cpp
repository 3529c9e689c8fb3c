// cuInit, which starts the session, and the calls with which a CUDA runtime initializes: these are
// passed through, and in a forked child their error shows that the program uses CUDA there.
#include "interpose/hooks/hook.hpp"
#include "interpose/process/fork_warning.hpp"

using memlab::interpose::call_real;
using memlab::interpose::Driver;
using memlab::interpose::driver_not_initialized;
using memlab::interpose::Session;

MEMLAB_EXPORT CUresult CUDAAPI cuInit(unsigned int flags) {
    const memlab::interpose::InsideMemlab inside;
    const CUresult result = call_real(&Driver::cuInit, flags);
    if (result == CUDA_SUCCESS && !inside.nested()) {
        Session::start(false);
    } else if (result == CUDA_ERROR_NOT_INITIALIZED) {
        driver_not_initialized();
    }
    return result;
}

namespace {

CUresult check_initialized(CUresult result) {
    if (result == CUDA_ERROR_NOT_INITIALIZED) [[unlikely]] {
        driver_not_initialized();
    }
    return result;
}

}  // namespace

// Those marked hot are called several times for each launch of PyTorch's.

MEMLAB_EXPORT CUresult CUDAAPI cuDeviceGetCount(int* count) {
    return check_initialized(call_real(&Driver::cuDeviceGetCount, count));
}

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device,
                                                                               unsigned int* flags,
                                                                               int* active) {
    return check_initialized(call_real(&Driver::cuDevicePrimaryCtxGetState, device, flags, active));
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
    return check_initialized(call_real(&Driver::cuCtxSetCurrent, context));
}

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
    return check_initialized(call_real(&Driver::cuCtxGetCurrent, context));
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
    return check_initialized(call_real(&Driver::cuCtxGetDevice, device));
}

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* device,
                                                                      CUcontext context) {
    return check_initialized(call_real(&Driver::cuCtxGetDevice_v2, device, context));
}
