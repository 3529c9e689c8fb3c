#include "interpose/sticky_errors.hpp"

#include "interpose/driver.hpp"

namespace memlab::interpose {

// A free of nothing does nothing but tell the state of things.
[[gnu::hot]] CUresult broken_context() {
    if (!sticky_error_seen.load(std::memory_order_relaxed)) {
        return CUDA_SUCCESS;
    }
    const CUresult answer = call_real(&Driver::cuMemFree_v2, CUdeviceptr{0});
    return is_sticky(answer) || answer == CUDA_ERROR_CONTEXT_IS_DESTROYED ? answer : CUDA_SUCCESS;
}

}  // namespace memlab::interpose
