// Functions that came after CUDA 13.0, and some of a CUDA that is yet to come
// (later_functions.inc): most do what an older one does. Recapturing is in capture.cpp.
#include "tests/simcuda/driver_abi.hpp"
#include "tests/simcuda/memory.hpp"

CUresult sim_cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void* userData,
                                 unsigned int syncMode) {
    return syncMode > 1 ? CUDA_ERROR_INVALID_VALUE : sim_cuLaunchHostFunc(hStream, fn, userData);
}

CUresult sim_cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                         CUmemcpyAttributes*, CUstream hStream) {
    return sim_cuMemcpyAsync(dst, src, size, hStream);
}

// Which device memory there is; what becomes of it is another process's business.
CUresult sim_cuLogicalEndpointCreate(CUlogicalEndpointId, const CUlogicalEndpointProp*) {
    return CUDA_SUCCESS;
}

CUresult sim_cuLogicalEndpointBindAddr(CUlogicalEndpointId, CUdevice, cuuint64_t, void* ptr,
                                       cuuint64_t size, unsigned long long) {
    return memlab::simcuda::usable(reinterpret_cast<CUdeviceptr>(ptr), size)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGraphAddNode_v3(CUgraphNode* phGraphNode, CUgraph hGraph,
                               const CUgraphNode* dependencies, const CUgraphEdgeData*,
                               size_t numDependencies, CUgraphNodeParams* nodeParams) {
    return sim_cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult sim_cuGraphNodeSetParams_v2(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
    return sim_cuGraphNodeSetParams(hNode, nodeParams);
}

CUresult sim_cuMemFree_v3(CUdeviceptr dptr) {
    return sim_cuMemFree_v2(dptr);
}

CUresult sim_cuMemAlloc_v3(CUdeviceptr* dptr, size_t bytesize) {
    return sim_cuMemAlloc_v2(dptr, bytesize);
}

CUresult sim_cuMemBindExtent(CUdeviceptr dptr, size_t bytesize) {
    return memlab::simcuda::usable(dptr, bytesize) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemsetTileAsync(CUdeviceptr dptr, unsigned char uc, size_t N, CUstream hStream) {
    return sim_cuMemsetD8Async(dptr, uc, N, hStream);
}

CUresult sim_cuStreamBeginCapture_v3(CUstream hStream, CUstreamCaptureMode mode, unsigned int) {
    return sim_cuStreamBeginCapture_v2(hStream, mode);
}

CUresult sim_cuStreamEndCapture_v2(CUstream hStream, CUgraph* phGraph, unsigned int) {
    return sim_cuStreamEndCapture(hStream, phGraph);
}

CUresult sim_cuDeviceGetMood(int* mood, CUdevice) {
    *mood = 1;
    return CUDA_SUCCESS;
}
