// Stream-ordered memory of pools that are on no device (CUDA 13): what cuda.core's
// PinnedMemoryResource and ManagedMemoryResource, and cudaMallocAsync from such pools, take.
//
// Recorded: async_pool 1 (64 MiB of a device's pool), pinned 3 (48 MiB of a host pool, 8 MiB of a
// NUMA node's, 2 MiB of the host's default pool), managed 2 (24 MiB of a pool of its own, 16 MiB of
// the default one). Freed: the 8 MiB, the 16 MiB, and the 64 MiB.
#include <cstring>

#include "program.hpp"

using namespace program;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

CUmemoryPool make_pool(CUmemLocation location, CUmemAllocationType type) {
    CUmemPoolProps properties{};
    properties.allocType = type;
    properties.location = location;
    CUmemoryPool pool = nullptr;
    CHECK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

[[gnu::noinline]] CUdeviceptr take(CUmemoryPool pool, std::size_t bytes) {
    CUdeviceptr address = 0;
    CHECK(cuMemAllocFromPoolAsync(&address, bytes, pool, nullptr));
    CHECK(cuStreamSynchronize(nullptr));
    return address;
}

}  // namespace

int main() {
    use_device();
    CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemLocation host{CU_MEM_LOCATION_TYPE_HOST, {0}};
    CUmemLocation node{CU_MEM_LOCATION_TYPE_HOST_NUMA, {0}};
    CUmemLocation anywhere{CU_MEM_LOCATION_TYPE_NONE, {0}};
    CUmemoryPool of_device = make_pool(device, CU_MEM_ALLOCATION_TYPE_PINNED);
    CUmemoryPool of_host = make_pool(host, CU_MEM_ALLOCATION_TYPE_PINNED);
    CUmemoryPool of_node = make_pool(node, CU_MEM_ALLOCATION_TYPE_PINNED);
    CUmemoryPool managed = make_pool(device, CU_MEM_ALLOCATION_TYPE_MANAGED);
    CUmemoryPool default_managed = nullptr;
    CUmemoryPool default_of_host = nullptr;
    CHECK(cuMemGetDefaultMemPool(&default_managed, &anywhere, CU_MEM_ALLOCATION_TYPE_MANAGED));
    CHECK(cuMemGetMemPool(&default_of_host, &host, CU_MEM_ALLOCATION_TYPE_PINNED));

    const CUdeviceptr plain = take(of_device, 64 * mib);
    const CUdeviceptr pinned = take(of_host, 48 * mib);
    const CUdeviceptr near = take(of_node, 8 * mib);
    const CUdeviceptr migrating = take(managed, 24 * mib);
    const CUdeviceptr also = take(default_managed, 16 * mib);
    take(default_of_host, 2 * mib);
    // The host reads and writes it at the same address.
    std::memset(reinterpret_cast<void*>(pinned), 1, mib);
    std::memset(reinterpret_cast<void*>(migrating), 2, mib);
    SAY("host %d, managed %d\n", *reinterpret_cast<const char*>(pinned + mib - 1),
        *reinterpret_cast<const char*>(migrating + mib - 1));
    CHECK(cuMemFreeAsync(near, nullptr));
    CHECK(cuMemFree(also));
    CHECK(cuMemFreeAsync(plain, nullptr));
    CHECK(cuStreamSynchronize(nullptr));
    return 0;
}
