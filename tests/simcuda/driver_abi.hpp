// The driver's ABI as simcuda implements it: every symbol of <cuda.h> in every version.
//
// exports.cpp defines the exported symbols. Each counts the call, answers an injected failure,
// takes the driver's lock and calls sim_<body>, declared here, which is written once for all stream
// flavors (a symbol and its _ptsz/_ptds twin differ only in what a null stream means). C linkage
// makes a body whose parameters differ from <cuda.h> a compile error. Bodies that simcuda does not
// model are weak and answer CUDA_ERROR_NOT_SUPPORTED (unsupported.cpp).
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>

// Types of later_functions.inc; any pointer and words of these sizes have the ABI.
#if CUDA_VERSION < 13020
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
#endif
#if CUDA_VERSION < 13030
typedef CUresult (*CUgraphRecaptureCallback)(void*);
typedef cuuint32_t CUlogicalEndpointId;
typedef struct CUlogicalEndpointProp_st CUlogicalEndpointProp;
#endif

extern "C" {
#define SIMCUDA_BODY(body, parameters, arguments) CUresult sim_##body parameters;
#include "tests/simcuda/driver_functions.inc"
#undef SIMCUDA_BODY
}
