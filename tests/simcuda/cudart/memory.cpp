// Allocation, pools, copies and fills.
#include <cstring>

#include "tests/simcuda/cudart/runtime.hpp"

using namespace memlab::simcuda::cudart;

namespace {

CUmemoryPool driver_pool(cudaMemPool_t pool) {
    return reinterpret_cast<CUmemoryPool>(pool);
}

CUresult copy(const Driver& d, void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
    switch (kind) {
        case cudaMemcpyHostToHost:
        case cudaMemcpyDefault:
            return d.cuMemcpy(device_pointer(dst), device_pointer(src), count);
        case cudaMemcpyHostToDevice:
            return d.cuMemcpyHtoD(device_pointer(dst), src, count);
        case cudaMemcpyDeviceToHost:
            return d.cuMemcpyDtoH(dst, device_pointer(src), count);
        case cudaMemcpyDeviceToDevice:
            return d.cuMemcpyDtoD(device_pointer(dst), device_pointer(src), count);
    }
    return static_cast<CUresult>(cudaErrorInvalidMemcpyDirection);
}

CUresult copy_async(const Driver& d, void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                    cudaStream_t stream) {
    switch (kind) {
        case cudaMemcpyHostToHost:
        case cudaMemcpyDefault:
            return d.cuMemcpyAsync(device_pointer(dst), device_pointer(src), count, stream);
        case cudaMemcpyHostToDevice:
            return d.cuMemcpyHtoDAsync(device_pointer(dst), src, count, stream);
        case cudaMemcpyDeviceToHost:
            return d.cuMemcpyDtoHAsync(dst, device_pointer(src), count, stream);
        case cudaMemcpyDeviceToDevice:
            return d.cuMemcpyDtoDAsync(device_pointer(dst), device_pointer(src), count, stream);
    }
    return static_cast<CUresult>(cudaErrorInvalidMemcpyDirection);
}

CUDA_MEMCPY2D rows(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                   size_t height) {
    CUDA_MEMCPY2D p{};
    p.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    p.srcDevice = device_pointer(src);
    p.srcPitch = spitch;
    p.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    p.dstDevice = device_pointer(dst);
    p.dstPitch = dpitch;
    p.WidthInBytes = width;
    p.Height = height;
    return p;
}

CUDA_MEMCPY3D box(const cudaMemcpy3DParms& q) {
    CUDA_MEMCPY3D p{};
    if (q.srcArray != nullptr) {
        p.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        p.srcArray = reinterpret_cast<CUarray>(q.srcArray);
    } else {
        p.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        p.srcDevice = device_pointer(q.srcPtr.ptr);
        p.srcPitch = q.srcPtr.pitch;
        p.srcHeight = q.srcPtr.ysize;
    }
    if (q.dstArray != nullptr) {
        p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        p.dstArray = reinterpret_cast<CUarray>(q.dstArray);
    } else {
        p.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        p.dstDevice = device_pointer(q.dstPtr.ptr);
        p.dstPitch = q.dstPtr.pitch;
        p.dstHeight = q.dstPtr.ysize;
    }
    p.srcXInBytes = q.srcPos.x;
    p.srcY = q.srcPos.y;
    p.srcZ = q.srcPos.z;
    p.dstXInBytes = q.dstPos.x;
    p.dstY = q.dstPos.y;
    p.dstZ = q.dstPos.z;
    p.WidthInBytes = q.extent.width;
    p.Height = q.extent.height;
    p.Depth = q.extent.depth;
    return p;
}

CUresult array_shape(const cudaChannelFormatDesc* desc, cudaExtent extent, unsigned flags,
                     CUDA_ARRAY3D_DESCRIPTOR& shape) {
    if (desc == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const int bits = desc->x;
    if (bits != 8 && bits != 16 && bits != 32) {
        return static_cast<CUresult>(cudaErrorInvalidChannelDescriptor);
    }
    const bool is_signed = desc->f == cudaChannelFormatKindSigned;
    shape.Width = extent.width;
    shape.Height = extent.height;
    shape.Depth = extent.depth;
    shape.Flags = flags;
    shape.NumChannels =
        static_cast<unsigned>((desc->x != 0) + (desc->y != 0) + (desc->z != 0) + (desc->w != 0));
    if (desc->f == cudaChannelFormatKindFloat) {
        shape.Format = bits == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
    } else if (bits == 8) {
        shape.Format = is_signed ? CU_AD_FORMAT_SIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT8;
    } else if (bits == 16) {
        shape.Format = is_signed ? CU_AD_FORMAT_SIGNED_INT16 : CU_AD_FORMAT_UNSIGNED_INT16;
    } else if (bits == 32) {
        shape.Format = is_signed ? CU_AD_FORMAT_SIGNED_INT32 : CU_AD_FORMAT_UNSIGNED_INT32;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

RUNTIME(cudaMalloc, (void** devPtr, size_t size), {
    if (devPtr == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (size == 0) {
        *devPtr = nullptr;
        return CUDA_SUCCESS;
    }
    CUdeviceptr address = 0;
    const CUresult result = d.cuMemAlloc(&address, size);
    if (result == CUDA_SUCCESS) {
        *devPtr = reinterpret_cast<void*>(address);
    }
    return result;
})

RUNTIME(cudaFree, (void* devPtr), { return d.cuMemFree(device_pointer(devPtr)); })

RUNTIME(cudaMallocPitch, (void** devPtr, size_t* pitch, size_t width, size_t height), {
    if (devPtr == nullptr || pitch == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (width == 0 || height == 0) {
        *devPtr = nullptr;
        *pitch = 0;
        return CUDA_SUCCESS;
    }
    CUdeviceptr address = 0;
    const CUresult result = d.cuMemAllocPitch(&address, pitch, width, height, 4);
    if (result == CUDA_SUCCESS) {
        *devPtr = reinterpret_cast<void*>(address);
    }
    return result;
})

RUNTIME(cudaMalloc3D, (cudaPitchedPtr * pitchedDevPtr, cudaExtent extent), {
    if (pitchedDevPtr == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pitchedDevPtr = {nullptr, 0, extent.width, extent.height};
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0) {
        return CUDA_SUCCESS;
    }
    CUdeviceptr address = 0;
    const CUresult result = d.cuMemAllocPitch(&address, &pitchedDevPtr->pitch, extent.width,
                                              extent.height * extent.depth, 4);
    if (result == CUDA_SUCCESS) {
        pitchedDevPtr->ptr = reinterpret_cast<void*>(address);
    }
    return result;
})

RUNTIME(cudaMallocManaged, (void** devPtr, size_t size, unsigned int flags), {
    if (devPtr == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (size == 0) {
        *devPtr = nullptr;
        return CUDA_SUCCESS;
    }
    CUdeviceptr address = 0;
    const CUresult result = d.cuMemAllocManaged(&address, size, flags);
    if (result == CUDA_SUCCESS) {
        *devPtr = reinterpret_cast<void*>(address);
    }
    return result;
})

RUNTIME(cudaMallocHost, (void** ptr, size_t size), {
    if (ptr == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (size == 0) {
        *ptr = nullptr;
        return CUDA_SUCCESS;
    }
    return d.cuMemAllocHost(ptr, size);
})

RUNTIME(cudaHostAlloc, (void** pHost, size_t size, unsigned int flags), {
    if (pHost == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (size == 0) {
        *pHost = nullptr;
        return CUDA_SUCCESS;
    }
    return d.cuMemHostAlloc(pHost, size, flags);
})

RUNTIME(cudaFreeHost, (void* ptr), { return ptr == nullptr ? CUDA_SUCCESS : d.cuMemFreeHost(ptr); })
RUNTIME(cudaHostRegister, (void* ptr, size_t size, unsigned int flags),
        { return d.cuMemHostRegister(ptr, size, flags); })
RUNTIME(cudaHostUnregister, (void* ptr), { return d.cuMemHostUnregister(ptr); })
RUNTIME(cudaHostGetFlags, (unsigned int* pFlags, void* pHost),
        { return d.cuMemHostGetFlags(pFlags, pHost); })
RUNTIME(cudaHostGetDevicePointer, (void** pDevice, void* pHost, unsigned int flags), {
    return d.cuMemHostGetDevicePointer(reinterpret_cast<CUdeviceptr*>(pDevice), pHost, flags);
})

RUNTIME_PAIR(cudaMallocAsync, _ptsz, (void** devPtr, size_t size, cudaStream_t hStream), {
    if (devPtr == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (size == 0) {
        *devPtr = nullptr;
        return CUDA_SUCCESS;
    }
    return d.cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(devPtr), size, hStream);
})

RUNTIME_PAIR(cudaMallocFromPoolAsync, _ptsz,
             (void** ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream), {
                 if (ptr == nullptr) {
                     return CUDA_ERROR_INVALID_VALUE;
                 }
                 if (size == 0) {
                     *ptr = nullptr;
                     return CUDA_SUCCESS;
                 }
                 return d.cuMemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr*>(ptr), size,
                                                  driver_pool(memPool), stream);
             })

RUNTIME_PAIR(cudaFreeAsync, _ptsz, (void* devPtr, cudaStream_t hStream), {
    return devPtr == nullptr ? CUDA_SUCCESS : d.cuMemFreeAsync(device_pointer(devPtr), hStream);
})

RUNTIME(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * memPool, int device),
        { return d.cuDeviceGetDefaultMemPool(reinterpret_cast<CUmemoryPool*>(memPool), device); })
RUNTIME(cudaDeviceGetMemPool, (cudaMemPool_t * memPool, int device),
        { return d.cuDeviceGetMemPool(reinterpret_cast<CUmemoryPool*>(memPool), device); })
RUNTIME(cudaDeviceSetMemPool, (int device, cudaMemPool_t memPool),
        { return d.cuDeviceSetMemPool(device, driver_pool(memPool)); })
RUNTIME(cudaMemPoolCreate, (cudaMemPool_t * memPool, const cudaMemPoolProps* poolProps), {
    return d.cuMemPoolCreate(reinterpret_cast<CUmemoryPool*>(memPool),
                             reinterpret_cast<const CUmemPoolProps*>(poolProps));
})
RUNTIME(cudaMemPoolDestroy, (cudaMemPool_t memPool),
        { return d.cuMemPoolDestroy(driver_pool(memPool)); })
RUNTIME(cudaMemPoolTrimTo, (cudaMemPool_t memPool, size_t minBytesToKeep),
        { return d.cuMemPoolTrimTo(driver_pool(memPool), minBytesToKeep); })
RUNTIME(cudaMemPoolGetAttribute, (cudaMemPool_t memPool, cudaMemPoolAttr attr, void* value), {
    return d.cuMemPoolGetAttribute(driver_pool(memPool), static_cast<CUmemPool_attribute>(attr),
                                   value);
})
RUNTIME(cudaMemPoolSetAttribute, (cudaMemPool_t memPool, cudaMemPoolAttr attr, void* value), {
    return d.cuMemPoolSetAttribute(driver_pool(memPool), static_cast<CUmemPool_attribute>(attr),
                                   value);
})
RUNTIME(cudaDeviceGraphMemTrim, (int device), { return d.cuDeviceGraphMemTrim(device); })

RUNTIME(cudaMemGetInfo, (size_t * free, size_t* total), { return d.cuMemGetInfo(free, total); })

RUNTIME(cudaPointerGetAttributes, (cudaPointerAttributes * attributes, const void* ptr), {
    if (attributes == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUmemorytype type{};
    unsigned managed = 0;
    int device = 0;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void* values[] = {&type, &managed, &device};
    const CUresult result = d.cuPointerGetAttributes(3, names, values, device_pointer(ptr));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    std::memset(attributes, 0, sizeof *attributes);
    attributes->device = device;
    attributes->type = managed != 0                   ? cudaMemoryTypeManaged
                       : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                       : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                                                      : cudaMemoryTypeUnregistered;
    void* pointer = const_cast<void*>(ptr);
    if (attributes->type != cudaMemoryTypeUnregistered) {
        attributes->devicePointer = pointer;
    }
    if (attributes->type != cudaMemoryTypeDevice) {
        attributes->hostPointer = pointer;
    }
    return CUDA_SUCCESS;
})

RUNTIME(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void* devPtr), {
    return d.cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), device_pointer(devPtr));
})
RUNTIME(cudaIpcOpenMemHandle, (void** devPtr, cudaIpcMemHandle_t handle, unsigned int flags), {
    CUipcMemHandle driver_handle;
    std::memcpy(&driver_handle, &handle, sizeof handle);
    return d.cuIpcOpenMemHandle(reinterpret_cast<CUdeviceptr*>(devPtr), driver_handle, flags);
})
RUNTIME(cudaIpcCloseMemHandle, (void* devPtr),
        { return d.cuIpcCloseMemHandle(device_pointer(devPtr)); })

RUNTIME_PAIR(cudaMemcpy, _ptds, (void* dst, const void* src, size_t count, cudaMemcpyKind kind),
             { return copy(d, dst, src, count, kind); })
RUNTIME_PAIR(cudaMemcpyAsync, _ptsz,
             (void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream),
             { return copy_async(d, dst, src, count, kind, stream); })

RUNTIME(cudaMemcpyPeer, (void* dst, int dstDevice, const void* src, int srcDevice, size_t count), {
    CUcontext to = nullptr;
    CUcontext from = nullptr;
    d.cuDevicePrimaryCtxRetain(&to, dstDevice);
    d.cuDevicePrimaryCtxRetain(&from, srcDevice);
    return d.cuMemcpyPeer(device_pointer(dst), to, device_pointer(src), from, count);
})
RUNTIME(cudaMemcpyPeerAsync,
        (void* dst, int dstDevice, const void* src, int srcDevice, size_t count,
         cudaStream_t stream),
        {
            CUcontext to = nullptr;
            CUcontext from = nullptr;
            d.cuDevicePrimaryCtxRetain(&to, dstDevice);
            d.cuDevicePrimaryCtxRetain(&from, srcDevice);
            return d.cuMemcpyPeerAsync(device_pointer(dst), to, device_pointer(src), from, count,
                                       stream);
        })

RUNTIME_PAIR(cudaMemcpy2D, _ptds,
             (void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
              cudaMemcpyKind),
             {
                 const CUDA_MEMCPY2D p = rows(dst, dpitch, src, spitch, width, height);
                 return d.cuMemcpy2D(&p);
             })
RUNTIME_PAIR(cudaMemcpy2DAsync, _ptsz,
             (void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
              cudaMemcpyKind, cudaStream_t stream),
             {
                 const CUDA_MEMCPY2D p = rows(dst, dpitch, src, spitch, width, height);
                 return d.cuMemcpy2DAsync(&p, stream);
             })
RUNTIME_PAIR(cudaMemcpy3D, _ptds, (const cudaMemcpy3DParms* p), {
    if (p == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUDA_MEMCPY3D q = box(*p);
    return d.cuMemcpy3D(&q);
})
RUNTIME_PAIR(cudaMemcpy3DAsync, _ptsz, (const cudaMemcpy3DParms* p, cudaStream_t stream), {
    if (p == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUDA_MEMCPY3D q = box(*p);
    return d.cuMemcpy3DAsync(&q, stream);
})

RUNTIME_PAIR(cudaMemset, _ptds, (void* devPtr, int value, size_t count), {
    return d.cuMemsetD8(device_pointer(devPtr), static_cast<unsigned char>(value), count);
})
RUNTIME_PAIR(cudaMemsetAsync, _ptsz, (void* devPtr, int value, size_t count, cudaStream_t stream), {
    return d.cuMemsetD8Async(device_pointer(devPtr), static_cast<unsigned char>(value), count,
                             stream);
})
RUNTIME_PAIR(cudaMemset2D, _ptds,
             (void* devPtr, size_t pitch, int value, size_t width, size_t height), {
                 return d.cuMemsetD2D8(device_pointer(devPtr), pitch,
                                       static_cast<unsigned char>(value), width, height);
             })
RUNTIME_PAIR(
    cudaMemset2DAsync, _ptsz,
    (void* devPtr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream), {
        return d.cuMemsetD2D8Async(device_pointer(devPtr), pitch, static_cast<unsigned char>(value),
                                   width, height, stream);
    })

RUNTIME_PAIR(cudaMemPrefetchAsync, _ptsz,
             (const void* devPtr, size_t count, cudaMemLocation location, unsigned int flags,
              cudaStream_t stream),
             {
                 CUmemLocation where;
                 std::memcpy(&where, &location, sizeof where);
                 return d.cuMemPrefetchAsync(device_pointer(devPtr), count, where, flags, stream);
             })
RUNTIME(cudaMemAdvise,
        (const void* devPtr, size_t count, cudaMemoryAdvise advice, cudaMemLocation location), {
            CUmemLocation where;
            std::memcpy(&where, &location, sizeof where);
            return d.cuMemAdvise(device_pointer(devPtr), count, static_cast<CUmem_advise>(advice),
                                 where);
        })

RUNTIME_PAIR(cudaMemcpyToSymbol, _ptds,
             (const void* symbol, const void* src, size_t count, size_t offset,
              cudaMemcpyKind kind),
             {
                 CUdeviceptr address = 0;
                 size_t bytes = 0;
                 if (const cudaError_t error = find_symbol(d, symbol, address, bytes)) {
                     return static_cast<CUresult>(error);
                 }
                 return copy(d, reinterpret_cast<void*>(address + offset), src, count, kind);
             })
RUNTIME_PAIR(cudaMemcpyFromSymbol, _ptds,
             (void* dst, const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind), {
                 CUdeviceptr address = 0;
                 size_t bytes = 0;
                 if (const cudaError_t error = find_symbol(d, symbol, address, bytes)) {
                     return static_cast<CUresult>(error);
                 }
                 return copy(d, dst, reinterpret_cast<void*>(address + offset), count, kind);
             })
RUNTIME_PAIR(cudaMemcpyToSymbolAsync, _ptsz,
             (const void* symbol, const void* src, size_t count, size_t offset, cudaMemcpyKind kind,
              cudaStream_t stream),
             {
                 CUdeviceptr address = 0;
                 size_t bytes = 0;
                 if (const cudaError_t error = find_symbol(d, symbol, address, bytes)) {
                     return static_cast<CUresult>(error);
                 }
                 return copy_async(d, reinterpret_cast<void*>(address + offset), src, count, kind,
                                   stream);
             })
RUNTIME(cudaGetSymbolAddress, (void** devPtr, const void* symbol), {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    const cudaError_t error = find_symbol(d, symbol, address, bytes);
    if (error == cudaSuccess) {
        *devPtr = reinterpret_cast<void*>(address);
    }
    return static_cast<CUresult>(error);
})
RUNTIME(cudaGetSymbolSize, (size_t * size, const void* symbol), {
    CUdeviceptr address = 0;
    return static_cast<CUresult>(find_symbol(d, symbol, address, *size));
})

RUNTIME(cudaMallocArray,
        (cudaArray_t * array, const cudaChannelFormatDesc* desc, size_t width, size_t height,
         unsigned int flags),
        {
            CUDA_ARRAY3D_DESCRIPTOR shape{};
            const CUresult wrong = array_shape(desc, {width, height, 0}, flags, shape);
            return wrong != CUDA_SUCCESS
                       ? wrong
                       : d.cuArray3DCreate(reinterpret_cast<CUarray*>(array), &shape);
        })
RUNTIME(cudaMalloc3DArray,
        (cudaArray_t * array, const cudaChannelFormatDesc* desc, cudaExtent extent,
         unsigned int flags),
        {
            CUDA_ARRAY3D_DESCRIPTOR shape{};
            const CUresult wrong = array_shape(desc, extent, flags, shape);
            return wrong != CUDA_SUCCESS
                       ? wrong
                       : d.cuArray3DCreate(reinterpret_cast<CUarray*>(array), &shape);
        })
RUNTIME(cudaFreeArray, (cudaArray_t array), {
    return array == nullptr ? CUDA_SUCCESS : d.cuArrayDestroy(reinterpret_cast<CUarray>(array));
})
RUNTIME(cudaMallocMipmappedArray,
        (cudaMipmappedArray_t * mipmappedArray, const cudaChannelFormatDesc* desc,
         cudaExtent extent, unsigned int numLevels, unsigned int flags),
        {
            CUDA_ARRAY3D_DESCRIPTOR shape{};
            const CUresult wrong = array_shape(desc, extent, flags, shape);
            return wrong != CUDA_SUCCESS ? wrong
                                         : d.cuMipmappedArrayCreate(
                                               reinterpret_cast<CUmipmappedArray*>(mipmappedArray),
                                               &shape, numLevels);
        })
RUNTIME(cudaFreeMipmappedArray, (cudaMipmappedArray_t mipmappedArray), {
    return mipmappedArray == nullptr
               ? CUDA_SUCCESS
               : d.cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(mipmappedArray));
})

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f) {
    return {x, y, z, w, f};
}

}  // extern "C"
