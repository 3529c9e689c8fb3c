// What memlab uses of <cuda.h> that came after CUDA 12.4, the oldest header it is built with. What
// came after 13.0 is declared as newer_functions.inc says where it was read.
// Functions and the types that they only point to are declared whatever the header is: one that
// declares them otherwise does not compile. Layouts and values are compared with the header's where
// it has them.
//
// Included by cuda_abi.hpp only.
#pragma once

#include <cstddef>

static_assert(CUDA_VERSION >= 12040, "memlab is built with the headers of CUDA 12.4 or newer");

extern "C" {

// Layouts of 12.8.
#if CUDA_VERSION < 12080
struct CUmemcpy3DOperand_st {
    unsigned type;
    union {
        struct {
            CUdeviceptr ptr;
            std::size_t rowLength;
            std::size_t layerHeight;
            CUmemLocation locHint;
        } ptr;
        struct {
            CUarray array;
            std::size_t offset[3];
        } array;
    } op;
};
struct CUDA_MEMCPY3D_BATCH_OP_st {
    CUmemcpy3DOperand_st src;
    CUmemcpy3DOperand_st dst;
    struct {
        std::size_t width;
        std::size_t height;
        std::size_t depth;
    } extent;
    unsigned srcAccessOrder;
    unsigned flags;
};
#endif
typedef struct CUmemcpy3DOperand_st CUmemcpy3DOperand;
typedef struct CUDA_MEMCPY3D_BATCH_OP_st CUDA_MEMCPY3D_BATCH_OP;
typedef struct CUctxCreateParams_st CUctxCreateParams;
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;
typedef struct CUmemDecompressParams_st CUmemDecompressParams;
// Only passed on: any pointer, also to a function, and words of these sizes have the ABI.
#if CUDA_VERSION < 13020
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
#endif
#if CUDA_VERSION < 13030
typedef void (*CUgraphRecaptureCallback)(void);
typedef cuuint32_t CUlogicalEndpointId;
typedef struct CUlogicalEndpointProp_st CUlogicalEndpointProp;
typedef int CUlogicalEndpointIpcHandleType;
#endif

// Since 12.5.
CUresult CUDAAPI cuCtxCreate_v4(CUcontext*, CUctxCreateParams*, unsigned, CUdevice);
CUresult CUDAAPI cuCtxRecordEvent(CUcontext, CUevent);
CUresult CUDAAPI cuCtxWaitEvent(CUcontext, CUevent);
CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream*, CUgreenCtx, unsigned, int);
CUresult CUDAAPI cuKernelGetLibrary(CUlibrary*, CUkernel);

// Since 12.6.
CUresult CUDAAPI cuMemBatchDecompressAsync(CUmemDecompressParams*, std::size_t, unsigned,
                                           std::size_t*, CUstream);
CUresult CUDAAPI cuMemBatchDecompressAsync_ptsz(CUmemDecompressParams*, std::size_t, unsigned,
                                                std::size_t*, CUstream);

// Since 12.8.
CUresult CUDAAPI cuEventElapsedTime_v2(float*, CUevent, CUevent);
CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t,
                                    CUmemcpyAttributes*, std::size_t*, std::size_t, std::size_t*,
                                    CUstream);
CUresult CUDAAPI cuMemcpyBatchAsync_ptsz(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t,
                                         CUmemcpyAttributes*, std::size_t*, std::size_t,
                                         std::size_t*, CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync(std::size_t, CUDA_MEMCPY3D_BATCH_OP*, std::size_t*,
                                      unsigned long long, CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_ptsz(std::size_t, CUDA_MEMCPY3D_BATCH_OP*, std::size_t*,
                                           unsigned long long, CUstream);

// Since 13.0.
CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice*, CUcontext);
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext);
CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool*, CUmemLocation*, CUmemAllocationType);
CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool*, CUmemLocation*, CUmemAllocationType);
CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t,
                                       CUmemcpyAttributes*, std::size_t*, std::size_t, CUstream);
CUresult CUDAAPI cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t,
                                            CUmemcpyAttributes*, std::size_t*, std::size_t,
                                            CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2(std::size_t, CUDA_MEMCPY3D_BATCH_OP*, unsigned long long,
                                         CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2_ptsz(std::size_t, CUDA_MEMCPY3D_BATCH_OP*,
                                              unsigned long long, CUstream);
CUresult CUDAAPI cuMemPrefetchBatchAsync(CUdeviceptr*, std::size_t*, std::size_t, CUmemLocation*,
                                         std::size_t*, std::size_t, unsigned long long, CUstream);
CUresult CUDAAPI cuMemPrefetchBatchAsync_ptsz(CUdeviceptr*, std::size_t*, std::size_t,
                                              CUmemLocation*, std::size_t*, std::size_t,
                                              unsigned long long, CUstream);
CUresult CUDAAPI cuMemDiscardBatchAsync(CUdeviceptr*, std::size_t*, std::size_t, unsigned long long,
                                        CUstream);
CUresult CUDAAPI cuMemDiscardBatchAsync_ptsz(CUdeviceptr*, std::size_t*, std::size_t,
                                             unsigned long long, CUstream);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr*, std::size_t*, std::size_t,
                                                   CUmemLocation*, std::size_t*, std::size_t,
                                                   unsigned long long, CUstream);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr*, std::size_t*, std::size_t,
                                                        CUmemLocation*, std::size_t*, std::size_t,
                                                        unsigned long long, CUstream);

// Since 13.1.
CUresult CUDAAPI cuMulticastBindMem_v2(CUmemGenericAllocationHandle, CUdevice, std::size_t,
                                       CUmemGenericAllocationHandle, std::size_t, std::size_t,
                                       unsigned long long);
CUresult CUDAAPI cuMulticastBindAddr_v2(CUmemGenericAllocationHandle, CUdevice, std::size_t,
                                        CUdeviceptr, std::size_t, unsigned long long);

// Since 13.2.
CUresult CUDAAPI cuLaunchHostFunc_v2(CUstream, CUhostFn, void*, unsigned);
CUresult CUDAAPI cuLaunchHostFunc_v2_ptsz(CUstream, CUhostFn, void*, unsigned);
CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr, CUdeviceptr, std::size_t,
                                             CUmemcpyAttributes*, CUstream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr, CUdeviceptr, std::size_t,
                                                  CUmemcpyAttributes*, CUstream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP*, unsigned long long,
                                               CUstream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP*, unsigned long long,
                                                    CUstream);
CUresult CUDAAPI cuStreamBeginCaptureToCig(CUstream, CUstreamCigCaptureParams*);
CUresult CUDAAPI cuStreamBeginCaptureToCig_ptsz(CUstream, CUstreamCigCaptureParams*);
CUresult CUDAAPI cuStreamEndCaptureToCig(CUstream);
CUresult CUDAAPI cuStreamEndCaptureToCig_ptsz(CUstream);

// Since 13.3.
CUresult CUDAAPI cuStreamBeginRecaptureToGraph(CUstream, CUstreamCaptureMode, CUgraph,
                                               CUgraphRecaptureCallback, void*);
CUresult CUDAAPI cuStreamBeginRecaptureToGraph_ptsz(CUstream, CUstreamCaptureMode, CUgraph,
                                                    CUgraphRecaptureCallback, void*);
CUresult CUDAAPI cuLogicalEndpointCreate(CUlogicalEndpointId, const CUlogicalEndpointProp*);
CUresult CUDAAPI cuLogicalEndpointBindAddr(CUlogicalEndpointId, CUdevice, cuuint64_t, void*,
                                           cuuint64_t, unsigned long long);
CUresult CUDAAPI cuLogicalEndpointBindMem(CUlogicalEndpointId, CUdevice, cuuint64_t,
                                          CUmemGenericAllocationHandle, cuuint64_t, cuuint64_t,
                                          unsigned long long);
CUresult CUDAAPI cuLogicalEndpointExport(void*, CUlogicalEndpointId,
                                         CUlogicalEndpointIpcHandleType);
CUresult CUDAAPI cuLogicalEndpointImport(CUlogicalEndpointId, const void*,
                                         CUlogicalEndpointIpcHandleType);

// Since 13.4.
CUresult CUDAAPI cuGraphAddNode_v3(CUgraphNode*, CUgraph, const CUgraphNode*,
                                   const CUgraphEdgeData*, std::size_t, CUgraphNodeParams*);
CUresult CUDAAPI cuGraphNodeSetParams_v2(CUgraphNode, CUgraphNodeParams*);

}  // extern "C"

namespace memlab::interpose::newer_cuda {

/// The newest CUDA whose additions were read, as cuDriverGetVersion counts.
inline constexpr int newest_known = 13050;

inline constexpr auto error_contained = static_cast<CUresult>(226);
inline constexpr auto error_tensor_memory_leak = static_cast<CUresult>(721);
inline constexpr auto device_decompresses = static_cast<CUdevice_attribute>(136);
inline constexpr auto pointer_is_decompress_capable = static_cast<CUpointer_attribute>(21);
inline constexpr unsigned char usage_decompress = 2;
inline constexpr auto allocation_is_managed = static_cast<CUmemAllocationType>(2);
inline constexpr int last_launch_attribute = 16;
inline constexpr unsigned operand_is_pointer = 1;

static_assert(offsetof(CUmemcpy3DOperand, op) == 8 && sizeof(CUmemcpy3DOperand) == 40 &&
              offsetof(CUmemcpy3DOperand, op.ptr.rowLength) == 16 &&
              offsetof(CUmemcpy3DOperand, op.ptr.layerHeight) == 24);
static_assert(offsetof(CUDA_MEMCPY3D_BATCH_OP, dst) == 40 &&
              offsetof(CUDA_MEMCPY3D_BATCH_OP, extent) == 80 &&
              sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112);
#if CUDA_VERSION >= 13000
static_assert(error_contained == CUDA_ERROR_CONTAINED);
static_assert(error_tensor_memory_leak == CUDA_ERROR_TENSOR_MEMORY_LEAK);
static_assert(device_decompresses == CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK);
static_assert(pointer_is_decompress_capable == CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE);
static_assert(usage_decompress == CU_MEM_CREATE_USAGE_HW_DECOMPRESS);
static_assert(allocation_is_managed == CU_MEM_ALLOCATION_TYPE_MANAGED);
static_assert(last_launch_attribute == CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING);
static_assert(operand_is_pointer == CU_MEMCPY_OPERAND_TYPE_POINTER);
#endif

}  // namespace memlab::interpose::newer_cuda
