// Green contexts, as far as memory and streams see them: a context of its own over the primary
// context's memory. Resources (SMs) are not modelled: any split is granted.
#include <cstring>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/state.hpp"

using namespace memlab::simcuda;

CUresult sim_cuDeviceGetDevResource(CUdevice device, CUdevResource* resource,
                                    CUdevResourceType type) {
    if (find_device(device) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (resource == nullptr || type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    std::memset(resource, 0, sizeof *resource);
    resource->type = type;
    resource->sm.smCount = 132;
    return CUDA_SUCCESS;
}

// All of it in one group; nothing remains.
CUresult sim_cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                         const CUdevResource* input, CUdevResource* remaining,
                                         unsigned int flags, unsigned int minCount) {
    if (nbGroups == nullptr || input == nullptr || flags != 0 || minCount > input->sm.smCount) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    *nbGroups = 1;
    if (result != nullptr) {
        *result = *input;
    }
    if (remaining != nullptr) {
        *remaining = *input;
        remaining->sm.smCount = 0;
    }
    return CUDA_SUCCESS;
}

// The description names its device in the pointer: it is never dereferenced.
CUresult sim_cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                       unsigned int nbResources) {
    if (phDesc == nullptr || resources == nullptr || nbResources == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phDesc = reinterpret_cast<CUdevResourceDesc>(uint64_t{1});
    return CUDA_SUCCESS;
}

CUresult sim_cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                              unsigned int flags) {
    Device* device = find_device(dev);
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (phCtx == nullptr || desc == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // It lives on the primary context, which it retains.
    CUcontext primary = nullptr;
    if (CUresult error = sim_cuDevicePrimaryCtxRetain(&primary, dev)) {
        return error;
    }
    *phCtx = reinterpret_cast<CUgreenCtx>(add_context(dev, 0, false, device->primary));
    return CUDA_SUCCESS;
}

CUresult sim_cuGreenCtxDestroy(CUgreenCtx hCtx) {
    Context* context = find_context(reinterpret_cast<CUcontext>(hCtx));
    if (context == nullptr || context->parent == nullptr || !context->alive) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    const int device = context->device;
    end_context(*context);
    return sim_cuDevicePrimaryCtxRelease_v2(device);
}

CUresult sim_cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
    Context* context = find_context(reinterpret_cast<CUcontext>(hCtx));
    if (context == nullptr || context->parent == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (pContext == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pContext = handle(context);
    return CUDA_SUCCESS;
}

CUresult sim_cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                    int priority) {
    Context* context = find_context(reinterpret_cast<CUcontext>(greenCtx));
    if (context == nullptr || context->parent == nullptr || !context->alive) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (phStream == nullptr || flags != CU_STREAM_NON_BLOCKING) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phStream = handle(add_stream(*context, flags, priority).get());
    return CUDA_SUCCESS;
}

CUresult sim_cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
    return sim_cuCtxRecordEvent(reinterpret_cast<CUcontext>(hCtx), hEvent);
}

CUresult sim_cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
    return sim_cuCtxWaitEvent(reinterpret_cast<CUcontext>(hCtx), hEvent);
}
