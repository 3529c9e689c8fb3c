// CUDA arrays: recorded with the bytes of their elements. The driver's tiling overhead shows only
// in the device's used memory. Texture references read arrays, or memory at an address.
#include <algorithm>
#include <type_traits>

#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"

namespace mi = memlab::interpose;
using mi::Api;
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

template <class Descriptor>
std::uint64_t array_bytes(const Descriptor* of) {
    if (of == nullptr) {
        return 0;
    }
    std::uint64_t depth = 1;
    if constexpr (requires { of->Depth; }) {
        depth = std::max<std::uint64_t>(of->Depth, 1);
    }
    return of->Width * std::max<std::uint64_t>(of->Height, 1) * depth *
           bytes_per_channel(of->Format) * std::max(of->NumChannels, 1U);
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

constexpr auto create_array = [](mi::Hooked hooked, const auto& real, CUarray* array,
                                 const auto* descriptor) {
    return allocate_array(hooked.api, HandleClass::array, array, array_bytes(descriptor), real);
};

constexpr auto create_mipmapped = [](mi::Hooked hooked, const auto& real, CUmipmappedArray* array,
                                     const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned levels) {
    std::uint64_t bytes = 0;
    if (descriptor != nullptr) {
        CUDA_ARRAY3D_DESCRIPTOR level = *descriptor;
        for (unsigned i = 0; i < std::min(levels, 32U); ++i) {
            bytes += array_bytes(&level);
            level.Width = std::max<std::size_t>(level.Width / 2, 1);
            level.Height /= 2;
            level.Depth /= 2;
        }
    }
    return allocate_array(hooked.api, HandleClass::mipmapped_array, array, bytes, real);
};

constexpr auto destroy_array = [](mi::Hooked hooked, const auto& real, auto array) {
    constexpr bool plain = std::is_same_v<decltype(array), CUarray>;
    return mi::hook(
        [&](Session& session) {
            return mi::free_from_driver(session, hooked.api,
                                        plain ? HandleClass::array : HandleClass::mipmapped_array,
                                        reinterpret_cast<std::uintptr_t>(array), real);
        },
        real);
};

[[gnu::used]] void export_array_functions() {
    MEMLAB_EXPORT_HOOK(cuArrayCreate, create_array);
    MEMLAB_EXPORT_HOOK(cuArrayCreate_v2, create_array);
    MEMLAB_EXPORT_HOOK(cuArray3DCreate, create_array);
    MEMLAB_EXPORT_HOOK(cuArray3DCreate_v2, create_array);
    MEMLAB_EXPORT_HOOK(cuArrayDestroy, destroy_array);
    MEMLAB_EXPORT_HOOK(cuMipmappedArrayCreate, create_mipmapped);
    MEMLAB_EXPORT_HOOK(cuMipmappedArrayDestroy, destroy_array);
    MEMLAB_EXPORT_PASSED(cuTexRefSetAddress);
    MEMLAB_EXPORT_PASSED(cuTexRefSetAddress_v2);
    MEMLAB_EXPORT_PASSED(cuTexRefSetAddress2D);
    MEMLAB_EXPORT_PASSED(cuTexRefSetAddress2D_v2);
    MEMLAB_EXPORT_PASSED(cuTexRefSetAddress2D_v3);
}

}  // namespace
