#include "interpose/driver/async_pools.hpp"

#include <algorithm>

#include "interpose/driver/driver.hpp"

namespace memlab::interpose {

void AsyncPools::created(CUmemoryPool pool, const CUmemPoolProps& properties) {
    const CUdevice device =
        properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties.location.id : on_host;
    destroyed(pool);
    const std::lock_guard lock(mutex_);
    known_.push_back({pool, device});
}

void AsyncPools::destroyed(CUmemoryPool pool) {
    const std::lock_guard lock(mutex_);
    std::erase_if(known_, [pool](const Known& known) { return known.pool == pool; });
}

CUdevice AsyncPools::find_device(CUmemoryPool pool, CUdevice current) const {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(known_.begin(), known_.end(),
                                 [pool](const Known& known) { return known.pool == pool; });
    return at == known_.end() ? current : at->device;
}

AsyncPools& async_pools() {
    static auto* const pools = new AsyncPools;
    return *pools;
}

std::uint64_t reserved_bytes_in(CUmemoryPool pool) {
    cuuint64_t reserved = 0;
    const CUresult result =
        call_real(&Driver::cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                  static_cast<void*>(&reserved));
    return result == CUDA_SUCCESS ? reserved : 0;
}

}  // namespace memlab::interpose
