// Arrays and mipmapped arrays: memory that has a handle instead of an address. They take what the
// blocks of a real driver's layout need; a texel's place is linear; textures and surfaces are not
// modelled.
#include "tests/simcuda/array.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/capture.hpp"
#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/state.hpp"
#include "tests/support/plain_cuda.hpp"

namespace memlab::simcuda {
namespace {

struct Array {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    uint64_t address = 0;
    uint64_t row = 0;
};

struct Mipmapped {
    std::vector<Array*> levels;
};

struct Arrays {
    std::set<Array*> arrays;
    std::set<Array*> of_mipmaps;
    std::set<Mipmapped*> mipmaps;
};

Arrays& arrays() {
    static Arrays& once = *new Arrays;
    return once;
}

uint64_t channel_bytes(CUarray_format format) {
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
            return 0;
    }
}

Array* find_array(CUarray handle) {
    auto* array = reinterpret_cast<Array*>(handle);
    return arrays().arrays.contains(array) ? array : nullptr;
}

CUresult create(Array*& made, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    const uint64_t texel = channel_bytes(shape.Format) * shape.NumChannels;
    constexpr size_t widest = size_t{1} << 20;  // more than any device's limits
    if (texel == 0 || shape.NumChannels == 3 || shape.NumChannels > 4 || shape.Width == 0 ||
        shape.Width > widest) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    auto array = std::make_unique<Array>();
    array->shape = shape;
    array->row = round_up(shape.Width * texel, 64);
    const uint64_t bytes =
        support::PlainCuda::array_bytes(shape.Width * texel, shape.Height, shape.Depth);
    if (CUresult result = allocate_device(root(*context), bytes, Kind::external, array->address)) {
        return result;
    }
    made = array.release();
    arrays().arrays.insert(made);
    return CUDA_SUCCESS;
}

void destroy(Array* array) {
    if (const Allocation* allocation = find_allocation(array->address)) {
        wait_for_context(*allocation->context);
        release_allocation(array->address);
    }
    arrays().arrays.erase(array);
    arrays().of_mipmaps.erase(array);
    delete array;
}

CUresult create_array(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
    Array* array = nullptr;
    const CUresult result = create(array, shape);
    if (result == CUDA_SUCCESS) {
        *out = reinterpret_cast<CUarray>(array);
    }
    return result;
}

}  // namespace

bool array_layout(CUarray handle, uint64_t& address, uint64_t& row, uint64_t& slice) {
    const Array* array = find_array(handle);
    if (array == nullptr) {
        return false;
    }
    address = array->address;
    row = array->row;
    slice = array->row * std::max<uint64_t>(array->shape.Height, 1);
    return true;
}

}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
    if (pHandle == nullptr || pAllocateArray == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return create_array(pHandle, {pAllocateArray->Width, pAllocateArray->Height, 0,
                                  pAllocateArray->Format, pAllocateArray->NumChannels, 0});
}

CUresult sim_cuArrayCreate(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR_v1* pAllocateArray) {
    if (pHandle == nullptr || pAllocateArray == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return create_array(pHandle, {pAllocateArray->Width, pAllocateArray->Height, 0,
                                  pAllocateArray->Format, pAllocateArray->NumChannels, 0});
}

CUresult sim_cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
    return pHandle == nullptr || pAllocateArray == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                           : create_array(pHandle, *pAllocateArray);
}

CUresult sim_cuArray3DCreate(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1* pAllocateArray) {
    if (pHandle == nullptr || pAllocateArray == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return create_array(
        pHandle, {pAllocateArray->Width, pAllocateArray->Height, pAllocateArray->Depth,
                  pAllocateArray->Format, pAllocateArray->NumChannels, pAllocateArray->Flags});
}

CUresult sim_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
    const Array* array = find_array(hArray);
    if (array == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (pArrayDescriptor == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pArrayDescriptor = array->shape;
    return CUDA_SUCCESS;
}

CUresult sim_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    const CUresult result =
        sim_cuArray3DGetDescriptor_v2(pArrayDescriptor == nullptr ? nullptr : &shape, hArray);
    if (result == CUDA_SUCCESS) {
        *pArrayDescriptor = {shape.Width, shape.Height, shape.Format, shape.NumChannels};
    }
    return result;
}

CUresult sim_cuArrayDestroy(CUarray hArray) {
    Array* array = find_array(hArray);
    if (array == nullptr || arrays().of_mipmaps.contains(array)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    destroy(array);
    return CUDA_SUCCESS;
}

CUresult sim_cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                    const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                    unsigned int numMipmapLevels) {
    if (pHandle == nullptr || pMipmappedArrayDesc == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto mipmapped = std::make_unique<Mipmapped>();
    CUDA_ARRAY3D_DESCRIPTOR shape = *pMipmappedArrayDesc;
    for (unsigned level = 0; level < std::max(numMipmapLevels, 1U); ++level) {
        Array* array = nullptr;
        if (CUresult result = create(array, shape)) {
            for (Array* made : mipmapped->levels) {
                destroy(made);
            }
            return result;
        }
        arrays().of_mipmaps.insert(array);
        mipmapped->levels.push_back(array);
        if (shape.Width <= 1 && shape.Height <= 1 && shape.Depth <= 1) {
            break;
        }
        shape.Width = std::max<size_t>(shape.Width / 2, 1);
        shape.Height = shape.Height == 0 ? 0 : std::max<size_t>(shape.Height / 2, 1);
        shape.Depth = shape.Depth == 0 ? 0 : std::max<size_t>(shape.Depth / 2, 1);
    }
    arrays().mipmaps.insert(mipmapped.get());
    *pHandle = reinterpret_cast<CUmipmappedArray>(mipmapped.release());
    return CUDA_SUCCESS;
}

CUresult sim_cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                      unsigned int level) {
    auto* mipmapped = reinterpret_cast<Mipmapped*>(hMipmappedArray);
    if (!arrays().mipmaps.contains(mipmapped)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (pLevelArray == nullptr || level >= mipmapped->levels.size()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pLevelArray = reinterpret_cast<CUarray>(mipmapped->levels[level]);
    return CUDA_SUCCESS;
}

CUresult sim_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
    auto* mipmapped = reinterpret_cast<Mipmapped*>(hMipmappedArray);
    if (!arrays().mipmaps.contains(mipmapped)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    for (Array* array : mipmapped->levels) {
        destroy(array);
    }
    arrays().mipmaps.erase(mipmapped);
    delete mipmapped;
    return CUDA_SUCCESS;
}
