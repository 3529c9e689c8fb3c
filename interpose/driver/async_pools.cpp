#include "interpose/driver/async_pools.hpp"

#include <algorithm>
#include <new>

#include "interpose/driver/driver.hpp"

namespace memlab::interpose {

namespace {

trace::MemoryKind kind_at(const CUmemLocation& location, CUmemAllocationType type) {
    return type == newer_cuda::allocation_is_managed      ? trace::MemoryKind::managed
           : location.type == CU_MEM_LOCATION_TYPE_DEVICE ? trace::MemoryKind::async_pool
                                                          : trace::MemoryKind::pinned;
}

}  // namespace

void AsyncPools::created(CUmemoryPool pool, const CUmemPoolProps& properties) {
    destroyed(pool);
    named(pool, properties.location, properties.allocType);
}

void AsyncPools::named(CUmemoryPool pool, const CUmemLocation& location, CUmemAllocationType type) {
    const trace::MemoryKind kind = kind_at(location, type);
    const bool of_device = kind == trace::MemoryKind::async_pool;
    const threads::LockGuard lock(mutex_);
    if (find(pool) == nullptr) {
        known_.push_back({pool, of_device ? location.id : on_no_device, kind});
        if (!of_device) {
            any_elsewhere_.store(true, std::memory_order_release);
        }
    }
}

const AsyncPools::Known* AsyncPools::find(CUmemoryPool pool) const {
    for (const Known& known : known_) {
        if (known.pool == pool) {
            return &known;
        }
    }
    return nullptr;
}

trace::MemoryKind AsyncPools::find_kind(CUmemoryPool pool) const {
    const threads::LockGuard lock(mutex_);
    const Known* const known = find(pool);
    return known == nullptr ? trace::MemoryKind::async_pool : known->kind;
}

void AsyncPools::destroyed(CUmemoryPool pool) {
    const threads::LockGuard lock(mutex_);
    std::erase_if(known_, [pool](const Known& known) { return known.pool == pool; });
}

CUdevice AsyncPools::find_device(CUmemoryPool pool, CUdevice current) const {
    const threads::LockGuard lock(mutex_);
    const Known* const known = find(pool);
    return known == nullptr ? current : known->device;
}

std::vector<CUmemoryPool> AsyncPools::on(CUdevice device) const {
    std::vector<CUmemoryPool> pools;
    const threads::LockGuard lock(mutex_);
    for (const Known& known : known_) {
        if (known.device == device) {
            pools.push_back(known.pool);
        }
    }
    return pools;
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

namespace {

std::uint64_t sum_of_pools(CUdevice device) {
    std::vector<CUmemoryPool> pools = async_pools().on(device);
    const auto add = [&](CUmemoryPool pool) {
        if (std::find(pools.begin(), pools.end(), pool) == pools.end()) {
            pools.push_back(pool);
        }
    };
    CUmemoryPool pool = nullptr;
    if (call_real(&Driver::cuDeviceGetDefaultMemPool, &pool, device) == CUDA_SUCCESS) {
        add(pool);
    }
    if (call_real(&Driver::cuDeviceGetMemPool, &pool, device) == CUDA_SUCCESS) {
        add(pool);
    }
    std::uint64_t reserved = 0;
    for (const CUmemoryPool each : pools) {
        reserved += reserved_bytes_in(each);
    }
    cuuint64_t graphs = 0;
    if (call_real(&Driver::cuDeviceGetGraphMemAttribute, device,
                  CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                  static_cast<void*>(&graphs)) == CUDA_SUCCESS) {
        reserved += graphs;
    }
    return reserved;
}

}  // namespace

std::uint64_t reserved_by_pools(CUdevice device) noexcept {
    if (!async_pools().used()) {
        return 0;
    }
    try {
        return sum_of_pools(device);
    } catch (const std::bad_alloc&) {
        return 0;
    }
}

}  // namespace memlab::interpose
