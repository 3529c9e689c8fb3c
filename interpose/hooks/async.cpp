// Stream-ordered memory: served by the driver's own pools, recorded by memlab. In a capture an
// allocation is a node of the graph (hooks/graph.cpp).
#include "interpose/driver/async_pools.hpp"
#include "interpose/driver/current_context.hpp"
#include "interpose/hooks/call_and_sample.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/graph_memory.hpp"

namespace mi = memlab::interpose;
using memlab::trace::MemoryKind;
using mi::Api;
using mi::Driver;
using mi::Session;

namespace {

// The graph keeps its allocations and their addresses; the driver refuses others.
template <class Real>
[[gnu::cold]] CUresult recapture(Session& session, Api api, const mi::DriverAllocation& allocation,
                                 CUgraph graph, const CUdeviceptr* address, const Real& real) {
    const CUresult result = mi::retry_after_release(session, real);
    if (result == CUDA_SUCCESS) {
        const auto live = session.live().find(mi::HandleClass::memory, *address);
        if (!live || live->kind != MemoryKind::graph) {
            mi::record_driver_allocation(session, api, allocation, *address);
        }
        mi::graph_memory().add(graph, *address);
    }
    return result;
}

/// `pool` is null for the device's current one.
template <class Real>
[[gnu::hot]] CUresult allocate_async(Api api, CUdeviceptr* address, std::size_t bytes,
                                     CUmemoryPool pool, CUstream stream, bool per_thread,
                                     const Real& real) {
    return mi::hook(
        [&](Session& session) {
            const CUgraph graph = mi::capturing_graph(session, stream, per_thread);
            mi::async_pools().note_use();
            mi::DriverAllocation allocation;
            allocation.kind =
                graph != nullptr ? MemoryKind::graph : mi::async_pools().kind_of(pool);
            allocation.requested = bytes;
            allocation.stream = stream == nullptr && per_thread ? CU_STREAM_PER_THREAD : stream;
            allocation.pool = pool;
            if (graph != nullptr && mi::graph_memory().may_be_recaptured()) {
                return recapture(session, api, allocation, graph, address, real);
            }
            const CUresult result =
                mi::allocate_from_driver(session, api, allocation, real, [&] { return *address; });
            if (result == CUDA_SUCCESS && graph != nullptr) {
                mi::graph_memory().add(graph, *address);
            }
            return result;
        },
        real);
}

template <class Real>
[[gnu::hot]] CUresult free_async(Api api, CUdeviceptr address, CUstream stream, bool per_thread,
                                 const Real& real) {
    return mi::hook(
        [&](Session& session) {
            // In a capture this adds a node: the memory is freed each time the graph runs.
            if (mi::capturing_graph(session, stream, per_thread) != nullptr) {
                return real();
            }
            // Without a current context there is no default stream, and some handles are invalid:
            // the driver returns the error. (It would also for memory that is not the pool's.)
            if (mi::stream_key(stream, per_thread) == mi::no_stream) {
                return real();
            }
            if (mi::is_default_stream(stream) && session.segments().find(address) != nullptr &&
                session.contexts().current() == nullptr) {
                return real();
            }
            return mi::free_device_async(session, api, address, mi::stream_key(stream, per_thread),
                                         real);
        },
        [&] { return mi::free_nested(Session::current(), api, address, real); });
}

/// The location decides what the pool's memory is: that of a device, the host's, or managed.
constexpr auto name_pool = [](mi::Hooked, const auto& real, CUmemoryPool* pool,
                              const CUmemLocation* location, CUmemAllocationType type) {
    return mi::hook(
        [&](Session&) {
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                mi::async_pools().named(*pool, *location, type);
            }
            return result;
        },
        real);
};

[[gnu::used]] void export_pool_functions() {
    MEMLAB_EXPORT_HOOK(cuMemGetDefaultMemPool, name_pool);
    MEMLAB_EXPORT_HOOK(cuMemGetMemPool, name_pool);
}

}  // namespace

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* address,
                                                                    size_t bytes, CUstream stream) {
    return allocate_async(Api::cuMemAllocAsync, address, bytes, nullptr, stream, false,
                          mi::real_call(&Driver::cuMemAllocAsync, address, bytes, stream));
}

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr* address,
                                                                         size_t bytes,
                                                                         CUstream stream) {
    return allocate_async(Api::cuMemAllocAsync_ptsz, address, bytes, nullptr, stream, true,
                          mi::real_call(&Driver::cuMemAllocAsync_ptsz, address, bytes, stream));
}

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* address,
                                                                            size_t bytes,
                                                                            CUmemoryPool pool,
                                                                            CUstream stream) {
    return allocate_async(
        Api::cuMemAllocFromPoolAsync, address, bytes, pool, stream, false,
        mi::real_call(&Driver::cuMemAllocFromPoolAsync, address, bytes, pool, stream));
}

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(
    CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    return allocate_async(
        Api::cuMemAllocFromPoolAsync_ptsz, address, bytes, pool, stream, true,
        mi::real_call(&Driver::cuMemAllocFromPoolAsync_ptsz, address, bytes, pool, stream));
}

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address,
                                                                   CUstream stream) {
    return free_async(Api::cuMemFreeAsync, address, stream, false,
                      mi::real_call(&Driver::cuMemFreeAsync, address, stream));
}

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr address,
                                                                        CUstream stream) {
    return free_async(Api::cuMemFreeAsync_ptsz, address, stream, true,
                      mi::real_call(&Driver::cuMemFreeAsync_ptsz, address, stream));
}

// A pool's reserved memory is visible in the device's used memory only.

MEMLAB_EXPORT CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool,
                                               const CUmemPoolProps* properties) {
    const auto real = mi::real_call(&Driver::cuMemPoolCreate, pool, properties);
    return mi::call_and_sample([&] {
        const CUresult result = real();
        if (result == CUDA_SUCCESS) {
            mi::async_pools().created(*pool, *properties);
        }
        return result;
    });
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
    mi::async_pools().destroyed(pool);  // before the handle can be reused
    return mi::call_and_sample(mi::real_call(&Driver::cuMemPoolDestroy, pool));
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    return mi::call_and_sample(mi::real_call(&Driver::cuMemPoolTrimTo, pool, keep));
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool pool,
                                                      CUmemPoolPtrExportData* data) {
    const auto real = mi::real_call(&Driver::cuMemPoolImportPointer, address, pool, data);
    return mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                mi::DriverAllocation allocation;
                allocation.kind = MemoryKind::ipc_import;
                size_t size = 0;
                if (mi::call_real(&Driver::cuMemGetAddressRange_v2,
                                  static_cast<CUdeviceptr*>(nullptr), &size,
                                  *address) == CUDA_SUCCESS) {
                    allocation.requested = size;
                }
                mi::record_driver_allocation(session, Api::cuMemPoolImportPointer, allocation,
                                             *address);
            }
            return result;
        },
        real);
}
