// Pinned host memory: served by the driver, recorded by memlab.
#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"

namespace mi = memlab::interpose;
using mi::Api;
using mi::Driver;
using mi::HandleClass;
using mi::Session;

namespace {

std::uint64_t to_integer(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

mi::DriverAllocation pinned(std::size_t bytes) {
    mi::DriverAllocation allocation;
    allocation.kind = memlab::trace::MemoryKind::pinned;
    allocation.requested = bytes;
    return allocation;
}

template <class Real>
CUresult allocate_pinned(Api api, void** address, std::size_t bytes, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            return mi::allocate_from_driver(session, api, pinned(bytes), real,
                                            [&] { return to_integer(*address); });
        },
        real);
}

template <class Real>
CUresult register_host(Api api, void* address, std::size_t bytes, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            return mi::allocate_from_driver(session, api, pinned(bytes), real,
                                            [&] { return to_integer(address); });
        },
        real);
}

template <class Real>
CUresult free_pinned(Api api, const void* address, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            return mi::free_from_driver(session, api, HandleClass::memory, to_integer(address),
                                        real);
        },
        real);
}

}  // namespace

MEMLAB_EXPORT CUresult CUDAAPI cuMemAllocHost(void** address, unsigned int bytes) {
    return allocate_pinned(Api::cuMemAllocHost, address, bytes,
                           mi::real_call(&Driver::cuMemAllocHost, address, bytes));
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemAllocHost_v2(void** address, size_t bytes) {
    return allocate_pinned(Api::cuMemAllocHost_v2, address, bytes,
                           mi::real_call(&Driver::cuMemAllocHost_v2, address, bytes));
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemHostAlloc(void** address, size_t bytes, unsigned int flags) {
    return allocate_pinned(Api::cuMemHostAlloc, address, bytes,
                           mi::real_call(&Driver::cuMemHostAlloc, address, bytes, flags));
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemFreeHost(void* address) {
    return free_pinned(Api::cuMemFreeHost, address, mi::real_call(&Driver::cuMemFreeHost, address));
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemHostRegister(void* address, size_t bytes, unsigned int flags) {
    return register_host(Api::cuMemHostRegister, address, bytes,
                         mi::real_call(&Driver::cuMemHostRegister, address, bytes, flags));
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemHostRegister_v2(void* address, size_t bytes,
                                                    unsigned int flags) {
    return register_host(Api::cuMemHostRegister_v2, address, bytes,
                         mi::real_call(&Driver::cuMemHostRegister_v2, address, bytes, flags));
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemHostUnregister(void* address) {
    return free_pinned(Api::cuMemHostUnregister, address,
                       mi::real_call(&Driver::cuMemHostUnregister, address));
}
