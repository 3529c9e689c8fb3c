// The current context, a stream's context, and an RAII guard that makes a context current.
#pragma once

#include "interpose/driver/driver.hpp"

namespace memlab::interpose {

/// The calling thread's current context, or null.
inline CUcontext current_context() {
    CUcontext context = nullptr;
    return call_real(&Driver::cuCtxGetCurrent, &context) == CUDA_SUCCESS ? context : nullptr;
}

/// The device of the calling thread's current context, or -1.
inline CUdevice current_device() {
    CUdevice device = -1;
    return call_real(&Driver::cuCtxGetDevice, &device) == CUDA_SUCCESS ? device : -1;
}

/// Default streams belong to the current context.
inline bool is_default_stream(CUstream stream) {
    return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/// The context in which the stream's work runs, or null.
inline CUcontext stream_context(CUstream stream) {
    CUcontext context = nullptr;
    if (is_default_stream(stream)) {
        return current_context();
    }
    return call_real(&Driver::cuStreamGetCtx, stream, &context) == CUDA_SUCCESS ? context : nullptr;
}

/// Makes `context` current for a scope; no driver call if it is current already, beyond the query.
class CurrentContext {
  public:
    explicit CurrentContext(CUcontext context) {
        CUcontext current = nullptr;
        if (call_real(&Driver::cuCtxGetCurrent, &current) == CUDA_SUCCESS && current != context) {
            pushed_ = call_real(&Driver::cuCtxPushCurrent_v2, context) == CUDA_SUCCESS;
        }
    }
    ~CurrentContext() {
        if (pushed_) {
            CUcontext popped = nullptr;
            call_real(&Driver::cuCtxPopCurrent_v2, &popped);
        }
    }
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;

  private:
    bool pushed_ = false;
};

}  // namespace memlab::interpose
