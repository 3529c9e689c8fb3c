// Streams, events, capture and graphs.
#include <cstring>

#include "tests/simcuda/cudart/runtime.hpp"

using namespace memlab::simcuda::cudart;

extern "C" {

RUNTIME(cudaStreamCreate, (cudaStream_t * pStream), { return d.cuStreamCreate(pStream, 0); })
RUNTIME(cudaStreamCreateWithFlags, (cudaStream_t * pStream, unsigned int flags),
        { return d.cuStreamCreate(pStream, flags); })
RUNTIME(cudaStreamCreateWithPriority, (cudaStream_t * pStream, unsigned int flags, int priority),
        { return d.cuStreamCreateWithPriority(pStream, flags, priority); })
RUNTIME(cudaStreamDestroy, (cudaStream_t stream), { return d.cuStreamDestroy(stream); })
RUNTIME_PAIR(cudaStreamSynchronize, _ptsz, (cudaStream_t stream),
             { return d.cuStreamSynchronize(stream); })
RUNTIME_PAIR(cudaStreamQuery, _ptsz, (cudaStream_t stream), { return d.cuStreamQuery(stream); })
RUNTIME_PAIR(cudaStreamWaitEvent, _ptsz,
             (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
             { return d.cuStreamWaitEvent(stream, event, flags); })
RUNTIME_PAIR(cudaStreamGetFlags, _ptsz, (cudaStream_t hStream, unsigned int* flags),
             { return d.cuStreamGetFlags(hStream, flags); })
RUNTIME_PAIR(cudaStreamGetPriority, _ptsz, (cudaStream_t hStream, int* priority),
             { return d.cuStreamGetPriority(hStream, priority); })
RUNTIME_PAIR(cudaStreamGetId, _ptsz, (cudaStream_t hStream, unsigned long long* streamId),
             { return d.cuStreamGetId(hStream, streamId); })
RUNTIME_PAIR(cudaStreamAddCallback, _ptsz,
             (cudaStream_t stream, cudaStreamCallback_t callback, void* userData,
              unsigned int flags),
             {
                 return d.cuStreamAddCallback(stream, reinterpret_cast<CUstreamCallback>(callback),
                                              userData, flags);
             })
RUNTIME_PAIR(cudaLaunchHostFunc, _ptsz, (cudaStream_t stream, cudaHostFn_t fn, void* userData),
             { return d.cuLaunchHostFunc(stream, fn, userData); })

RUNTIME(cudaEventCreate, (cudaEvent_t * event), { return d.cuEventCreate(event, 0); })
RUNTIME(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags),
        { return d.cuEventCreate(event, flags); })
RUNTIME(cudaEventDestroy, (cudaEvent_t event), { return d.cuEventDestroy(event); })
RUNTIME_PAIR(cudaEventRecord, _ptsz, (cudaEvent_t event, cudaStream_t stream),
             { return d.cuEventRecord(event, stream); })
RUNTIME_PAIR(cudaEventRecordWithFlags, _ptsz,
             (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
             { return d.cuEventRecordWithFlags(event, stream, flags); })
RUNTIME(cudaEventQuery, (cudaEvent_t event), { return d.cuEventQuery(event); })
RUNTIME(cudaEventSynchronize, (cudaEvent_t event), { return d.cuEventSynchronize(event); })
RUNTIME(cudaEventElapsedTime, (float* ms, cudaEvent_t start, cudaEvent_t end),
        { return d.cuEventElapsedTime(ms, start, end); })

RUNTIME_PAIR(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, cudaStreamCaptureMode mode),
             { return d.cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)); })
RUNTIME_PAIR(cudaStreamBeginCaptureToGraph, _ptsz,
             (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
              const cudaGraphEdgeData* dependencyData, size_t numDependencies,
              cudaStreamCaptureMode mode),
             {
                 return d.cuStreamBeginCaptureToGraph(
                     stream, graph, dependencies,
                     reinterpret_cast<const CUgraphEdgeData*>(dependencyData), numDependencies,
                     static_cast<CUstreamCaptureMode>(mode));
             })
RUNTIME_PAIR(cudaStreamEndCapture, _ptsz, (cudaStream_t stream, cudaGraph_t* pGraph),
             { return d.cuStreamEndCapture(stream, pGraph); })
RUNTIME_PAIR(cudaStreamIsCapturing, _ptsz,
             (cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus), {
                 return d.cuStreamIsCapturing(
                     stream, reinterpret_cast<CUstreamCaptureStatus*>(pCaptureStatus));
             })
RUNTIME_PAIR(cudaStreamGetCaptureInfo, _ptsz,
             (cudaStream_t stream, cudaStreamCaptureStatus* captureStatus_out,
              unsigned long long* id_out, cudaGraph_t* graph_out,
              const cudaGraphNode_t** dependencies_out, const cudaGraphEdgeData** edgeData_out,
              size_t* numDependencies_out),
             {
                 cuuint64_t id = 0;
                 const CUresult result = d.cuStreamGetCaptureInfo(
                     stream, reinterpret_cast<CUstreamCaptureStatus*>(captureStatus_out), &id,
                     graph_out, dependencies_out,
                     reinterpret_cast<const CUgraphEdgeData**>(edgeData_out), numDependencies_out);
                 if (id_out != nullptr) {
                     *id_out = id;
                 }
                 return result;
             })
RUNTIME(cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode * mode), {
    return d.cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode));
})

RUNTIME(cudaGraphCreate, (cudaGraph_t * pGraph, unsigned int flags),
        { return d.cuGraphCreate(pGraph, flags); })
RUNTIME(cudaGraphDestroy, (cudaGraph_t graph), { return d.cuGraphDestroy(graph); })
RUNTIME(cudaGraphClone, (cudaGraph_t * pGraphClone, cudaGraph_t originalGraph),
        { return d.cuGraphClone(pGraphClone, originalGraph); })
RUNTIME(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* numNodes),
        { return d.cuGraphGetNodes(graph, nodes, numNodes); })
RUNTIME(cudaGraphAddMemAllocNode,
        (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
         size_t numDependencies, cudaMemAllocNodeParams* nodeParams),
        {
            return d.cuGraphAddMemAllocNode(
                pGraphNode, graph, pDependencies, numDependencies,
                reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(nodeParams));
        })
RUNTIME(cudaGraphAddMemFreeNode,
        (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
         size_t numDependencies, void* dptr),
        {
            return d.cuGraphAddMemFreeNode(pGraphNode, graph, pDependencies, numDependencies,
                                           device_pointer(dptr));
        })
RUNTIME(cudaGraphInstantiate,
        (cudaGraphExec_t * pGraphExec, cudaGraph_t graph, unsigned long long flags),
        { return d.cuGraphInstantiateWithFlags(pGraphExec, graph, flags); })
RUNTIME(cudaGraphInstantiateWithFlags,
        (cudaGraphExec_t * pGraphExec, cudaGraph_t graph, unsigned long long flags),
        { return d.cuGraphInstantiateWithFlags(pGraphExec, graph, flags); })
RUNTIME(cudaGraphExecUpdate,
        (cudaGraphExec_t hGraphExec, cudaGraph_t hGraph, cudaGraphExecUpdateResultInfo* resultInfo),
        {
            CUgraphExecUpdateResultInfo info{};
            const CUresult result = d.cuGraphExecUpdate(hGraphExec, hGraph, &info);
            if (resultInfo != nullptr) {
                std::memcpy(resultInfo, &info, sizeof info);
            }
            return result;
        })
RUNTIME(cudaGraphExecDestroy, (cudaGraphExec_t graphExec),
        { return d.cuGraphExecDestroy(graphExec); })
RUNTIME_PAIR(cudaGraphLaunch, _ptsz, (cudaGraphExec_t graphExec, cudaStream_t stream),
             { return d.cuGraphLaunch(graphExec, stream); })
RUNTIME_PAIR(cudaGraphUpload, _ptsz, (cudaGraphExec_t graphExec, cudaStream_t stream),
             { return d.cuGraphUpload(graphExec, stream); })

}  // extern "C"
