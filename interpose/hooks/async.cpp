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
[[gnu::always_inline]] inline CUresult allocate_async(mi::Hooked hooked, const Real& real,
                                                      CUdeviceptr* address, std::size_t bytes,
                                                      CUmemoryPool pool, CUstream stream) {
    return mi::hook_passed(
        [&](Session& session) {
            const CUgraph graph = mi::capturing_graph(session, stream, hooked.per_thread);
            mi::async_pools().note_use();
            mi::DriverAllocation allocation;
            allocation.kind =
                graph != nullptr ? MemoryKind::graph : mi::async_pools().kind_of(pool);
            allocation.requested = bytes;
            allocation.stream =
                stream == nullptr && hooked.per_thread ? CU_STREAM_PER_THREAD : stream;
            allocation.pool = pool;
            if (graph != nullptr && mi::graph_memory().may_be_recaptured()) {
                return recapture(session, hooked.api, allocation, graph, address, real);
            }
            const CUresult result = mi::allocate_from_driver(session, hooked.api, allocation, real,
                                                             [&] { return *address; });
            if (result == CUDA_SUCCESS && graph != nullptr) {
                mi::graph_memory().add(graph, *address);
            }
            return result;
        },
        real);
}

constexpr auto allocate = [](mi::Hooked hooked, const auto& real, CUdeviceptr* address,
                             std::size_t bytes, CUstream stream) {
    return allocate_async(hooked, real, address, bytes, nullptr, stream);
};

constexpr auto allocate_from_pool = [](mi::Hooked hooked, const auto& real, CUdeviceptr* address,
                                       std::size_t bytes, CUmemoryPool pool, CUstream stream) {
    return allocate_async(hooked, real, address, bytes, pool, stream);
};

constexpr auto free_async = [](mi::Hooked hooked, const auto& real, CUdeviceptr address,
                               CUstream stream) {
    return mi::hook(
        [&](Session& session) {
            // In a capture this adds a node: the memory is freed each time the graph runs.
            if (mi::capturing_graph(session, stream, hooked.per_thread) != nullptr) {
                return real();
            }
            // Without a current context there is no default stream, and some handles are invalid:
            // the driver returns the error. (It would also for memory that is not the pool's.)
            const mi::StreamKey key = mi::stream_key(stream, hooked.per_thread);
            if (key == mi::no_stream) {
                return real();
            }
            if (mi::is_default_stream(stream) && session.segments().find(address) != nullptr &&
                session.contexts().current() == nullptr) {
                return real();
            }
            return mi::free_device_async(session, hooked.api, address, key, real);
        },
        [&] { return mi::free_nested(Session::current(), hooked.api, address, real); });
};

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

[[gnu::used]] void export_async_functions() {
    MEMLAB_EXPORT_HOT_HOOK(cuMemAllocAsync, allocate);
    MEMLAB_EXPORT_HOT_HOOK(cuMemAllocAsync_ptsz, allocate);
    MEMLAB_EXPORT_HOT_HOOK(cuMemAllocFromPoolAsync, allocate_from_pool);
    MEMLAB_EXPORT_HOT_HOOK(cuMemAllocFromPoolAsync_ptsz, allocate_from_pool);
    MEMLAB_EXPORT_HOT_HOOK(cuMemFreeAsync, free_async);
    MEMLAB_EXPORT_HOT_HOOK(cuMemFreeAsync_ptsz, free_async);

    MEMLAB_EXPORT_HOOK(cuMemGetDefaultMemPool, name_pool);
    MEMLAB_EXPORT_HOOK(cuMemGetMemPool, name_pool);
}

}  // namespace

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
    mi::gate.no_checkpoint_from_now_on(mi::shared_with_processes);
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
