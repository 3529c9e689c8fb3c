// Devices, errors and versions.
#include <cstring>

#include "tests/simcuda/cudart/runtime.hpp"

using namespace memlab::simcuda::cudart;

extern "C" {

cudaError_t cudaGetLastError() {
    return last_error(true);
}

cudaError_t cudaPeekAtLastError() {
    return last_error(false);
}

const char* cudaGetErrorName(cudaError_t error) {
    // Codes of the runtime alone, and its own spelling of the driver's.
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorInitializationError:
            return "cudaErrorInitializationError";
        case cudaErrorInvalidDevice:
            return "cudaErrorInvalidDevice";
        case cudaErrorNoDevice:
            return "cudaErrorNoDevice";
        case cudaErrorInsufficientDriver:
            return "cudaErrorInsufficientDriver";
        case cudaErrorInvalidSymbol:
            return "cudaErrorInvalidSymbol";
        case cudaErrorInvalidDeviceFunction:
            return "cudaErrorInvalidDeviceFunction";
        case cudaErrorInvalidResourceHandle:
            return "cudaErrorInvalidResourceHandle";
        case cudaErrorNotReady:
            return "cudaErrorNotReady";
        case cudaErrorNotSupported:
            return "cudaErrorNotSupported";
        case cudaErrorStreamCaptureUnsupported:
            return "cudaErrorStreamCaptureUnsupported";
        case cudaErrorStreamCaptureInvalidated:
            return "cudaErrorStreamCaptureInvalidated";
        default:
            break;
    }
    const Driver* driver = nullptr;
    const char* name = nullptr;
    if (open_driver(legacy, driver) == cudaSuccess) {
        driver->cuGetErrorName(static_cast<CUresult>(error), &name);
    }
    return name != nullptr ? name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
    if (error == cudaErrorInsufficientDriver) {
        return "CUDA driver version is insufficient for CUDA runtime version";
    }
    const Driver* driver = nullptr;
    const char* text = nullptr;
    if (open_driver(legacy, driver) == cudaSuccess || driver->cuGetErrorString != nullptr) {
        driver->cuGetErrorString(static_cast<CUresult>(error), &text);
    }
    return text != nullptr ? text : "unrecognized error code";
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
    if (runtimeVersion == nullptr) {
        return note(cudaErrorInvalidValue);
    }
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
    const Driver* driver = nullptr;
    if (driverVersion == nullptr) {
        return note(cudaErrorInvalidValue);
    }
    *driverVersion = 0;
    const cudaError_t error = open_driver(legacy, driver);
    if (error == cudaErrorInsufficientDriver) {
        return cudaSuccess;
    }
    return note(convert(driver->cuDriverGetVersion(driverVersion)));
}

cudaError_t cudaGetDeviceCount(int* count) {
    const Driver* driver = nullptr;
    if (count == nullptr) {
        return note(cudaErrorInvalidValue);
    }
    *count = 0;
    if (const cudaError_t error = open_driver(legacy, driver)) {
        return note(error);
    }
    return note(convert(driver->cuDeviceGetCount(count)));
}

cudaError_t cudaGetDevice(int* device) {
    if (device == nullptr) {
        return note(cudaErrorInvalidValue);
    }
    const Driver* driver = nullptr;
    if (const cudaError_t error = open_driver(legacy, driver)) {
        return note(error);
    }
    CUdevice current = thread_device();
    CUcontext context = nullptr;
    if (driver->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr) {
        driver->cuCtxGetDevice(&current);
    }
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return note(set_thread_device(device));
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
    const int before = thread_device();
    const cudaError_t result = set_thread_device(device);
    set_thread_device(before);
    return note(result);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
    const Driver* driver = nullptr;
    if (const cudaError_t error = open_driver(legacy, driver)) {
        return note(error);
    }
    return note(convert(driver->cuDevicePrimaryCtxSetFlags(thread_device(), flags)));
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
    const Driver* driver = nullptr;
    int active = 0;
    if (const cudaError_t error = open_driver(legacy, driver)) {
        return note(error);
    }
    return note(convert(driver->cuDevicePrimaryCtxGetState(thread_device(), flags, &active)));
}

cudaError_t cudaDeviceReset() {
    const Driver* driver = nullptr;
    if (const cudaError_t error = open_driver(legacy, driver)) {
        return note(error);
    }
    const int device = thread_device();
    forget_primary(device);
    forget_images();
    last_error(true);
    return note(convert(driver->cuDevicePrimaryCtxReset(device)));
}

RUNTIME(cudaDeviceSynchronize, (), { return d.cuCtxSynchronize(); })

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
    const Driver* driver = nullptr;
    if (const cudaError_t error = open_driver(legacy, driver)) {
        return note(error);
    }
    return note(convert(
        driver->cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attr), device)));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
    const Driver* driver = nullptr;
    if (const cudaError_t error = open_driver(legacy, driver)) {
        return note(error);
    }
    if (prop == nullptr) {
        return note(cudaErrorInvalidValue);
    }
    std::memset(prop, 0, sizeof *prop);
    if (const CUresult result = driver->cuDeviceGetName(prop->name, sizeof prop->name, device)) {
        return note(convert(result));
    }
    driver->cuDeviceGetUuid(&prop->uuid, device);
    driver->cuDeviceTotalMem(&prop->totalGlobalMem, device);
    const auto get = [&](CUdevice_attribute attribute) {
        int value = 0;
        driver->cuDeviceGetAttribute(&value, attribute, device);
        return value;
    };
    const auto wide = [&](CUdevice_attribute attribute) {
        return static_cast<size_t>(get(attribute));
    };
    prop->sharedMemPerBlock = wide(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    prop->sharedMemPerBlockOptin = wide(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    prop->sharedMemPerMultiprocessor =
        wide(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    prop->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    prop->regsPerMultiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
    prop->warpSize = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    prop->memPitch = wide(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    prop->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    prop->maxThreadsDim[0] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
    prop->maxThreadsDim[1] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
    prop->maxThreadsDim[2] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
    prop->maxGridSize[0] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
    prop->maxGridSize[1] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
    prop->maxGridSize[2] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
    prop->totalConstMem = wide(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    prop->major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    prop->minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    prop->textureAlignment = wide(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    prop->texturePitchAlignment = wide(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT);
    prop->surfaceAlignment = wide(CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT);
    prop->multiProcessorCount = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    prop->maxThreadsPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    prop->maxBlocksPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    prop->canMapHostMemory = get(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
    prop->concurrentKernels = get(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
    prop->asyncEngineCount = get(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
    prop->unifiedAddressing = get(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
    prop->managedMemory = get(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
    prop->concurrentManagedAccess = get(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
    prop->memoryPoolsSupported = get(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
    prop->cooperativeLaunch = get(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
    prop->streamPrioritiesSupported = get(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
    prop->l2CacheSize = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    prop->memoryBusWidth = get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    prop->pciBusID = get(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
    prop->pciDeviceID = get(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    prop->pciDomainID = get(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
    return cudaSuccess;
}

RUNTIME(cudaDeviceGetPCIBusId, (char* pciBusId, int len, int device),
        { return d.cuDeviceGetPCIBusId(pciBusId, len, device); })
RUNTIME(cudaDeviceGetByPCIBusId, (int* device, const char* pciBusId),
        { return d.cuDeviceGetByPCIBusId(device, pciBusId); })
RUNTIME(cudaDeviceCanAccessPeer, (int* canAccessPeer, int device, int peerDevice),
        { return d.cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice); })
RUNTIME(cudaDeviceGetLimit, (size_t * pValue, cudaLimit limit),
        { return d.cuCtxGetLimit(pValue, static_cast<CUlimit>(limit)); })
RUNTIME(cudaDeviceSetLimit, (cudaLimit limit, size_t value),
        { return d.cuCtxSetLimit(static_cast<CUlimit>(limit), value); })
RUNTIME(cudaDeviceGetStreamPriorityRange, (int* leastPriority, int* greatestPriority),
        { return d.cuCtxGetStreamPriorityRange(leastPriority, greatestPriority); })

RUNTIME(cudaDeviceEnablePeerAccess, (int peerDevice, unsigned int flags), {
    CUcontext peer = nullptr;
    const CUresult result = d.cuDevicePrimaryCtxRetain(&peer, peerDevice);
    return result != CUDA_SUCCESS ? result : d.cuCtxEnablePeerAccess(peer, flags);
})

RUNTIME(cudaDeviceDisablePeerAccess, (int peerDevice), {
    CUcontext peer = nullptr;
    const CUresult result = d.cuDevicePrimaryCtxRetain(&peer, peerDevice);
    return result != CUDA_SUCCESS ? result : d.cuCtxDisablePeerAccess(peer);
})

RUNTIME(cudaProfilerStart, (), { return d.cuProfilerStart(); })
RUNTIME(cudaProfilerStop, (), { return d.cuProfilerStop(); })

}  // extern "C"

namespace {

cudaError_t entry_point(const char* symbol, void** funcPtr, unsigned version,
                        unsigned long long flags, cudaDriverEntryPointQueryResult* status,
                        bool per_thread_default) {
    const Driver* driver = nullptr;
    if (const cudaError_t error = open_driver(legacy, driver)) {
        return note(error);
    }
    if (symbol == nullptr || funcPtr == nullptr) {
        return note(cudaErrorInvalidValue);
    }
    if (flags == cudaEnableDefault && per_thread_default) {
        flags = cudaEnablePerThreadDefaultStream;
    }
    *funcPtr = nullptr;
    CUdriverProcAddressQueryResult found{};
    const CUresult result =
        resolve_entry_point(symbol, funcPtr, static_cast<int>(version), flags, &found);
    if (status != nullptr) {
        *status = static_cast<cudaDriverEntryPointQueryResult>(found);
    }
    return note(result == CUDA_ERROR_NOT_FOUND ? cudaSuccess : convert(result));
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** funcPtr,
                                             unsigned int cudaVersion, unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* driverStatus) {
    return entry_point(symbol, funcPtr, cudaVersion, flags, driverStatus, false);
}

cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char* symbol, void** funcPtr,
                                                  unsigned int cudaVersion,
                                                  unsigned long long flags,
                                                  cudaDriverEntryPointQueryResult* driverStatus) {
    return entry_point(symbol, funcPtr, cudaVersion, flags, driverStatus, true);
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* driverStatus) {
    return entry_point(symbol, funcPtr, CUDART_VERSION, flags, driverStatus, false);
}

cudaError_t cudaGetDriverEntryPoint_ptsz(const char* symbol, void** funcPtr,
                                         unsigned long long flags,
                                         cudaDriverEntryPointQueryResult* driverStatus) {
    return entry_point(symbol, funcPtr, CUDART_VERSION, flags, driverStatus, true);
}

}  // extern "C"
