// Makes a context current for a scope.
#pragma once

#include "interpose/driver.hpp"

namespace memlab::interpose {

/// Does nothing where the context is current already.
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
