#include "interpose/bounds.hpp"

#include "interpose/context_registry.hpp"
#include "interpose/current_context.hpp"
#include "interpose/nested_frees.hpp"
#include "interpose/session.hpp"
#include "interpose/sticky_errors.hpp"

namespace memlab::interpose {

bool outside_of_pooled(Session& session, CUdeviceptr address, std::size_t bytes) {
    Context* owner = session.segments().find(address);
    if (owner == nullptr) {
        return false;
    }
    if (nested_frees.any()) {
        const std::optional<allocator::BlockInfo> block = owner->pool().find(address);
        if (block && nested_frees.has(block->address)) {
            return true;
        }
    }
    return owner->pool().reach(address, bytes) == allocator::Pool::Reach::outside;
}

CUresult answer_to_outside(CUstream stream) {
    if (is_default_stream(stream) && current_context() == nullptr) {
        return CUDA_SUCCESS;
    }
    const CUresult broken = broken_context();
    return broken != CUDA_SUCCESS ? broken : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace memlab::interpose
