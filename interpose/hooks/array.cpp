// CUDA arrays: recorded with the bytes of their elements. The driver's tiling overhead shows only
// in the device's used memory.
#include <algorithm>

#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"

namespace mi = memlab::interpose;
using mi::Api;
using mi::Driver;
using mi::HandleClass;
using mi::Session;

namespace {

std::uint64_t bytes_per_channel(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return 1;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return 2;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return 4;
        default:
            return 1;  // block-compressed and planar formats: about one byte per element
    }
}

std::uint64_t array_bytes(std::uint64_t width, std::uint64_t height, std::uint64_t depth,
                          CUarray_format format, unsigned channels) {
    return width * std::max<std::uint64_t>(height, 1) * std::max<std::uint64_t>(depth, 1) *
           bytes_per_channel(format) * std::max(channels, 1U);
}

template <class Descriptor>
std::uint64_t bytes_2d(const Descriptor* d) {
    return d == nullptr ? 0 : array_bytes(d->Width, d->Height, 0, d->Format, d->NumChannels);
}

template <class Descriptor>
std::uint64_t bytes_3d(const Descriptor* d) {
    return d == nullptr ? 0 : array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels);
}

template <class Array, class Real>
CUresult allocate_array(Api api, HandleClass handles, Array* array, std::uint64_t bytes,
                        const Real& real) {
    return mi::hook(
        [&](Session& session) {
            mi::DriverAllocation allocation;
            allocation.handles = handles;
            allocation.kind = memlab::trace::MemoryKind::array;
            allocation.requested = bytes;
            allocation.estimated = true;
            return mi::allocate_from_driver(session, api, allocation, real, [&] {
                return std::uint64_t{reinterpret_cast<std::uintptr_t>(*array)};
            });
        },
        real);
}

template <class Array, class Real>
CUresult destroy_array(Api api, HandleClass handles, Array array, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            return mi::free_from_driver(session, api, handles,
                                        reinterpret_cast<std::uintptr_t>(array), real);
        },
        real);
}

}  // namespace

MEMLAB_EXPORT CUresult CUDAAPI cuArrayCreate(CUarray* array,
                                             const CUDA_ARRAY_DESCRIPTOR_v1* descriptor) {
    return allocate_array(Api::cuArrayCreate, HandleClass::array, array, bytes_2d(descriptor),
                          mi::real_call(&Driver::cuArrayCreate, array, descriptor));
}

MEMLAB_EXPORT CUresult CUDAAPI cuArrayCreate_v2(CUarray* array,
                                                const CUDA_ARRAY_DESCRIPTOR* descriptor) {
    return allocate_array(Api::cuArrayCreate_v2, HandleClass::array, array, bytes_2d(descriptor),
                          mi::real_call(&Driver::cuArrayCreate_v2, array, descriptor));
}

MEMLAB_EXPORT CUresult CUDAAPI cuArray3DCreate(CUarray* array,
                                               const CUDA_ARRAY3D_DESCRIPTOR_v1* descriptor) {
    return allocate_array(Api::cuArray3DCreate, HandleClass::array, array, bytes_3d(descriptor),
                          mi::real_call(&Driver::cuArray3DCreate, array, descriptor));
}

MEMLAB_EXPORT CUresult CUDAAPI cuArray3DCreate_v2(CUarray* array,
                                                  const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
    return allocate_array(Api::cuArray3DCreate_v2, HandleClass::array, array, bytes_3d(descriptor),
                          mi::real_call(&Driver::cuArray3DCreate_v2, array, descriptor));
}

MEMLAB_EXPORT CUresult CUDAAPI cuArrayDestroy(CUarray array) {
    return destroy_array(Api::cuArrayDestroy, HandleClass::array, array,
                         mi::real_call(&Driver::cuArrayDestroy, array));
}

MEMLAB_EXPORT CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray* array,
                                                      const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                                      unsigned int levels) {
    std::uint64_t bytes = 0;
    if (descriptor != nullptr) {
        CUDA_ARRAY3D_DESCRIPTOR level = *descriptor;
        for (unsigned i = 0; i < std::min(levels, 32U); ++i) {
            bytes += bytes_3d(&level);
            level.Width = std::max<std::size_t>(level.Width / 2, 1);
            level.Height /= 2;
            level.Depth /= 2;
        }
    }
    return allocate_array(
        Api::cuMipmappedArrayCreate, HandleClass::mipmapped_array, array, bytes,
        mi::real_call(&Driver::cuMipmappedArrayCreate, array, descriptor, levels));
}

MEMLAB_EXPORT CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray array) {
    return destroy_array(Api::cuMipmappedArrayDestroy, HandleClass::mipmapped_array, array,
                         mi::real_call(&Driver::cuMipmappedArrayDestroy, array));
}
