// One allocation of each kind of memory, freed again; the argument "keep" leaves all of them.
//
// Recorded, each with as many frees unless kept:
//   device      2: cuMemAlloc 10,000 bytes; cuMemAllocPitch, 50 rows of the pitch that is printed
//   managed     1: 20,000 bytes
//   pinned      3: cuMemAllocHost 30,000; cuMemHostAlloc 40,000; cuMemHostRegister 8192 bytes
//   array       3: cuArrayCreate 64×64 float, cuArray3DCreate 16×16×16 float, a mipmapped array
//   async_pool  2: cuMemAllocAsync 50,000; cuMemAllocFromPoolAsync 60,000
//   vmm         1: cuMemCreate of one granule (2 MiB on every device known), mapped, written, read
#include <cstring>
#include <vector>

#include "program.hpp"

using namespace program;

int main(int argc, char** argv) {
    const bool keep = argc == 2 && std::strcmp(argv[1], "keep") == 0;
    use_device();

    const CUdeviceptr device = allocate(10000);
    CUdeviceptr pitched = 0;
    std::size_t pitch = 0;
    CHECK(cuMemAllocPitch(&pitched, &pitch, 1000, 50, 4));
    SAY("device: pitch %zu\n", pitch);

    CUdeviceptr managed = 0;
    CHECK(cuMemAllocManaged(&managed, 20000, CU_MEM_ATTACH_GLOBAL));
    SAY("managed\n");

    void* pinned = nullptr;
    void* mapped = nullptr;
    CHECK(cuMemAllocHost(&pinned, 30000));
    CHECK(cuMemHostAlloc(&mapped, 40000, CU_MEMHOSTALLOC_DEVICEMAP));
    std::memset(pinned, 1, 30000);
    std::memset(mapped, 2, 40000);
    alignas(4096) static char registered[8192];
    CHECK(cuMemHostRegister(registered, sizeof registered, 0));
    SAY("pinned\n");

    CUarray flat = nullptr;
    CUDA_ARRAY_DESCRIPTOR flat_shape{};
    flat_shape.Width = 64;
    flat_shape.Height = 64;
    flat_shape.Format = CU_AD_FORMAT_FLOAT;
    flat_shape.NumChannels = 1;
    CHECK(cuArrayCreate(&flat, &flat_shape));
    CUarray deep = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR deep_shape{};
    deep_shape.Width = 16;
    deep_shape.Height = 16;
    deep_shape.Depth = 16;
    deep_shape.Format = CU_AD_FORMAT_FLOAT;
    deep_shape.NumChannels = 1;
    CHECK(cuArray3DCreate(&deep, &deep_shape));
    CUmipmappedArray mipmapped = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR mip_shape = deep_shape;
    mip_shape.Depth = 0;
    CHECK(cuMipmappedArrayCreate(&mipmapped, &mip_shape, 3));
    SAY("array\n");

    CUdeviceptr async = 0;
    CUdeviceptr from_pool = 0;
    CUmemoryPool pool = nullptr;
    CHECK(cuMemAllocAsync(&async, 50000, nullptr));
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemAllocFromPoolAsync(&from_pool, 60000, pool, nullptr));
    CHECK(cuStreamSynchronize(nullptr));
    SAY("async pool\n");

    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = 0;
    std::size_t granule = 0;
    CHECK(cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle physical = 0;
    CUdeviceptr range = 0;
    CHECK(cuMemCreate(&physical, granule, &properties, 0));
    CHECK(cuMemAddressReserve(&range, granule, 0, 0, 0));
    CHECK(cuMemMap(range, granule, 0, physical, 0));
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(range, granule, &access, 1));
    CHECK(cuMemsetD8(range, 0x5A, granule));
    std::vector<unsigned char> host(granule);
    CHECK(cuMemcpyDtoH(host.data(), range, granule));
    SAY("vmm: %zu bytes, last byte %d\n", granule, host.back());

    if (keep) {
        return 0;
    }
    CHECK(cuMemUnmap(range, granule));
    CHECK(cuMemRelease(physical));
    CHECK(cuMemAddressFree(range, granule));
    CHECK(cuMemFreeAsync(from_pool, nullptr));
    CHECK(cuMemFreeAsync(async, nullptr));
    CHECK(cuStreamSynchronize(nullptr));
    CHECK(cuMipmappedArrayDestroy(mipmapped));
    CHECK(cuArrayDestroy(deep));
    CHECK(cuArrayDestroy(flat));
    CHECK(cuMemHostUnregister(registered));
    CHECK(cuMemFreeHost(mapped));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree(managed));
    CHECK(cuMemFree(pitched));
    CHECK(cuMemFree(device));
    SAY("all freed\n");
    return 0;
}
