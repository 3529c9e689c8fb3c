// cuInit, which starts the session, and the calls with which a CUDA runtime initializes: these are
// passed through, and in a forked child their error shows that the program uses CUDA there.
#include "interpose/hooks/hook.hpp"
#include "interpose/process/fork_warning.hpp"

using memlab::interpose::call_real;
using memlab::interpose::Driver;
using memlab::interpose::driver_not_initialized;
using memlab::interpose::Session;

MEMLAB_EXPORT CUresult CUDAAPI cuInit(unsigned int flags) {
    const memlab::interpose::OtherPassage passage;
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
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

constexpr auto check_initialized = [](memlab::interpose::Hooked, const auto& real, auto...) {
    const CUresult result = real();
    if (result == CUDA_ERROR_NOT_INITIALIZED) [[unlikely]] {
        driver_not_initialized();
    }
    return result;
};

// The hot ones are called several times for each launch of PyTorch's.
[[gnu::used]] void export_first_functions() {
    MEMLAB_EXPORT_HOOK(cuDeviceGetCount, check_initialized);
    MEMLAB_EXPORT_HOT_HOOK(cuDevicePrimaryCtxGetState, check_initialized);
    MEMLAB_EXPORT_HOOK(cuCtxSetCurrent, check_initialized);
    MEMLAB_EXPORT_HOT_HOOK(cuCtxGetCurrent, check_initialized);
    MEMLAB_EXPORT_HOOK(cuCtxGetDevice, check_initialized);
    MEMLAB_EXPORT_HOT_HOOK(cuCtxGetDevice_v2, check_initialized);
}

}  // namespace
