// Graphs with memory nodes. A node's memory is recorded with kind "graph" from the node's creation
// until no graph derived from it is left, or until the program frees it outside.
#include <type_traits>

#include "interpose/driver/async_pools.hpp"
#include "interpose/driver/current_context.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/hooks/call_and_sample.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/measured_call.hpp"
#include "interpose/memory/bounds.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/graph_memory.hpp"

namespace mi = memlab::interpose;
using memlab::trace::LedgerKind;
using mi::Api;
using mi::Driver;
using mi::Session;

namespace {

void record_node(Session& session, Api api, CUgraph graph, CUdeviceptr address, size_t bytes) {
    mi::DriverAllocation allocation;
    allocation.kind = memlab::trace::MemoryKind::graph;
    allocation.requested = bytes;
    mi::async_pools().note_use();
    mi::record_driver_allocation(session, api, allocation, address);
    mi::graph_memory().add(graph, address);
}

// A node that copies or fills; rejected past the end of an allocation, as the direct call is.
// `context` is the node's context.
template <class Parameters, class Real>
CUresult node(const Parameters* parameters, CUcontext context, const Real& real) {
    return mi::hook(
        [&](Session& session) -> CUresult {
            if (mi::any_out_of_bounds(session, parameters)) {
                const CUresult answer = mi::out_of_bounds_result(CU_STREAM_LEGACY);
                if (answer != CUDA_SUCCESS) {
                    return answer;
                }
            }
            // The driver checks a copy's addresses in the current context.
            const bool copy = !std::is_same_v<Parameters, CUDA_MEMSET_NODE_PARAMS>;
            const CUdevice device =
                copy && session.contexts().has_multiple() ? mi::current_device() : -1;
            const auto uses = [&](CUdeviceptr address, std::size_t /*bytes*/) {
                session.contexts().used_by_graph(address, context, device);
            };
            mi::ranges::for_each(uses, parameters);
            return real();
        },
        real);
}

// node() for parameters of any type.
template <class Real>
CUresult any_node(const CUgraphNodeParams* parameters, const Real& real) {
    if (parameters != nullptr && parameters->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        return node(&parameters->memcpy.copyParams, parameters->memcpy.copyCtx, real);
    }
    if (parameters != nullptr && parameters->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        const CUDA_MEMSET_NODE_PARAMS_v2& fill = parameters->memset;
        const CUDA_MEMSET_NODE_PARAMS same{fill.dst,         fill.pitch, fill.value,
                                           fill.elementSize, fill.width, fill.height};
        return node(&same, fill.ctx, real);
    }
    return real();
}

template <class Real>
CUresult add_node(Api api, CUgraph graph, const CUgraphNodeParams* parameters, const Real& real) {
    if (parameters == nullptr || parameters->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        return any_node(parameters, real);
    }
    return mi::hook(
        [&](Session& session) {
            const CUresult result = mi::retry_after_release(session, real);
            if (result == CUDA_SUCCESS) {
                record_node(session, api, graph, parameters->alloc.dptr,
                            parameters->alloc.bytesize);
            }
            return result;
        },
        real);
}

// `made` is derived from `from` and keeps its memory alive.
template <class Made, class Real>
CUresult make_from(const void* from, const Made* made, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            const CUresult result = mi::retry_after_release(session, real);
            if (result == CUDA_SUCCESS) {
                mi::graph_memory().share(from, *made);
            }
            return result;
        },
        real);
}

// Plain CUDA rejects a graph with a fill past the end of an allocation.
template <class Real>
CUresult instantiate(Api api, CUgraph graph, CUgraphExec* executable, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            if (mi::has_overrun(session, graph)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const CUresult result = mi::measured(session, {.kind = LedgerKind::graph}, api, real);
            if (result == CUDA_SUCCESS) {
                mi::graph_memory().share(graph, *executable);
            }
            return result;
        },
        real);
}

// A graph is ordered as a whole by the stream of its launch or upload.
void before_submit(CUstream stream, bool per_thread) {
    if (mi::one_stream.tracking()) {
        mi::one_stream.before_submit(mi::stream_key(stream, per_thread));
    }
}

void before_launch(CUstream stream, bool per_thread) {
    before_submit(stream, per_thread);
    if (Session* session = Session::current()) {
        const mi::InsideMemlab inside;
        if (!inside.nested()) {
            session->contexts().before_graph_launch(stream);
        }
    }
}

// The ledger attributes what an upload takes to this call, not to the first launch.
template <class Real>
CUresult upload(Api api, CUstream stream, bool per_thread, const Real& real) {
    before_submit(stream, per_thread);
    const mi::WorkClock::Submission submission(mi::work_clock);
    return mi::hook(
        [&](Session& session) {
            return mi::measured(session, {.kind = LedgerKind::graph}, api, real);
        },
        real);
}

// What an upload would have taken the first launch takes, if there was none.
template <class Real>
CUresult launch(Api api, CUgraphExec executable, CUstream stream, bool per_thread,
                const Real& real) {
    before_launch(stream, per_thread);
    const mi::WorkClock::Submission submission(mi::work_clock);
    if (mi::launched.knows_at_once(executable)) {
        return mi::call_and_sample(real);
    }
    mi::FirstLaunch first(LedgerKind::graph, executable);
    const CUresult result = mi::call_and_sample(real);
    first.done(api, result);
    return result;
}

template <class Real>
CUresult destroy(Api api, const void* graph, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            const bool executable = api == Api::cuGraphExecDestroy;
            if (executable) {
                mi::launched.forget(mi::Launched::key(graph));
            }
            const CUresult result =
                executable
                    ? mi::measured(session, {.kind = LedgerKind::graph, .returns = true}, api, real)
                    : real();
            if (result == CUDA_SUCCESS) {
                mi::graph_memory().destroyed(session, api, graph);
            }
            return result;
        },
        real);
}

}  // namespace

MEMLAB_EXPORT CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph,
                                                      const CUgraphNode* dependencies, size_t count,
                                                      CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    const auto real = mi::real_call(&Driver::cuGraphAddMemAllocNode, node, graph, dependencies,
                                    count, parameters);
    return mi::hook(
        [&](Session& session) {
            const CUresult result = mi::retry_after_release(session, real);
            if (result == CUDA_SUCCESS) {
                record_node(session, Api::cuGraphAddMemAllocNode, graph, parameters->dptr,
                            parameters->bytesize);
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph,
                                                     const CUgraphNode* dependencies, size_t count,
                                                     CUdeviceptr address) {
    return mi::call_real(&Driver::cuGraphAddMemFreeNode, node, graph, dependencies, count, address);
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphAddNode(CUgraphNode* node, CUgraph graph,
                                              const CUgraphNode* dependencies, size_t count,
                                              CUgraphNodeParams* parameters) {
    return add_node(
        Api::cuGraphAddNode, graph, parameters,
        mi::real_call(&Driver::cuGraphAddNode, node, graph, dependencies, count, parameters));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph,
                                                 const CUgraphNode* dependencies,
                                                 const CUgraphEdgeData* edges, size_t count,
                                                 CUgraphNodeParams* parameters) {
    return add_node(Api::cuGraphAddNode_v2, graph, parameters,
                    mi::real_call(&Driver::cuGraphAddNode_v2, node, graph, dependencies, edges,
                                  count, parameters));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphAddNode_v3(CUgraphNode* node, CUgraph graph,
                                                 const CUgraphNode* dependencies,
                                                 const CUgraphEdgeData* edges, size_t count,
                                                 CUgraphNodeParams* parameters) {
    return add_node(Api::cuGraphAddNode_v3, graph, parameters,
                    mi::real_call(&Driver::cuGraphAddNode_v3, node, graph, dependencies, edges,
                                  count, parameters));
}

// Copy and fill nodes: creation and change of parameters.

MEMLAB_EXPORT CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode* made, CUgraph graph,
                                                    const CUgraphNode* dependencies, size_t count,
                                                    const CUDA_MEMCPY3D* copy, CUcontext context) {
    return node(copy, context,
                mi::real_call(&Driver::cuGraphAddMemcpyNode, made, graph, dependencies, count, copy,
                              context));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode changed,
                                                          const CUDA_MEMCPY3D* copy) {
    return node(copy, nullptr, mi::real_call(&Driver::cuGraphMemcpyNodeSetParams, changed, copy));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec executable,
                                                              CUgraphNode changed,
                                                              const CUDA_MEMCPY3D* copy,
                                                              CUcontext context) {
    return node(
        copy, context,
        mi::real_call(&Driver::cuGraphExecMemcpyNodeSetParams, executable, changed, copy, context));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode* made, CUgraph graph,
                                                    const CUgraphNode* dependencies, size_t count,
                                                    const CUDA_MEMSET_NODE_PARAMS* fill,
                                                    CUcontext context) {
    return node(fill, context,
                mi::real_call(&Driver::cuGraphAddMemsetNode, made, graph, dependencies, count, fill,
                              context));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode changed,
                                                          const CUDA_MEMSET_NODE_PARAMS* fill) {
    return node(fill, nullptr, mi::real_call(&Driver::cuGraphMemsetNodeSetParams, changed, fill));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec executable,
                                                              CUgraphNode changed,
                                                              const CUDA_MEMSET_NODE_PARAMS* fill,
                                                              CUcontext context) {
    return node(
        fill, context,
        mi::real_call(&Driver::cuGraphExecMemsetNodeSetParams, executable, changed, fill, context));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode changed,
                                                    CUgraphNodeParams* parameters) {
    return any_node(parameters, mi::real_call(&Driver::cuGraphNodeSetParams, changed, parameters));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphNodeSetParams_v2(CUgraphNode changed,
                                                       CUgraphNodeParams* parameters) {
    return any_node(parameters,
                    mi::real_call(&Driver::cuGraphNodeSetParams_v2, changed, parameters));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec executable, CUgraphNode changed,
                                                        CUgraphNodeParams* parameters) {
    return any_node(parameters, mi::real_call(&Driver::cuGraphExecNodeSetParams, executable,
                                              changed, parameters));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* executable, CUgraph graph,
                                                  CUgraphNode* error_node, char* log,
                                                  size_t log_size) {
    return instantiate(
        Api::cuGraphInstantiate, graph, executable,
        mi::real_call(&Driver::cuGraphInstantiate, executable, graph, error_node, log, log_size));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* executable, CUgraph graph,
                                                     CUgraphNode* error_node, char* log,
                                                     size_t log_size) {
    return instantiate(Api::cuGraphInstantiate_v2, graph, executable,
                       mi::real_call(&Driver::cuGraphInstantiate_v2, executable, graph, error_node,
                                     log, log_size));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                                           unsigned long long flags) {
    return instantiate(
        Api::cuGraphInstantiateWithFlags, graph, executable,
        mi::real_call(&Driver::cuGraphInstantiateWithFlags, executable, graph, flags));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphInstantiateWithParams(
    CUgraphExec* executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
    return instantiate(
        Api::cuGraphInstantiateWithParams, graph, executable,
        mi::real_call(&Driver::cuGraphInstantiateWithParams, executable, graph, parameters));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphInstantiateWithParams_ptsz(
    CUgraphExec* executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
    return instantiate(
        Api::cuGraphInstantiateWithParams_ptsz, graph, executable,
        mi::real_call(&Driver::cuGraphInstantiateWithParams_ptsz, executable, graph, parameters));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphClone(CUgraph* clone, CUgraph original) {
    return make_from(original, clone, mi::real_call(&Driver::cuGraphClone, clone, original));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec executable, CUgraph graph,
                                                 CUgraphNode* error_node,
                                                 CUgraphExecUpdateResult* outcome) {
    return make_from(
        graph, &executable,
        mi::real_call(&Driver::cuGraphExecUpdate, executable, graph, error_node, outcome));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph,
                                                    CUgraphExecUpdateResultInfo* info) {
    return make_from(graph, &executable,
                     mi::real_call(&Driver::cuGraphExecUpdate_v2, executable, graph, info));
}

// A graph's memory is mapped at its first launch. A launch submits work.

MEMLAB_EXPORT CUresult CUDAAPI cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    return launch(Api::cuGraphLaunch, executable, stream, false,
                  mi::real_call(&Driver::cuGraphLaunch, executable, stream));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream) {
    return launch(Api::cuGraphLaunch_ptsz, executable, stream, true,
                  mi::real_call(&Driver::cuGraphLaunch_ptsz, executable, stream));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphUpload(CUgraphExec executable, CUstream stream) {
    return upload(Api::cuGraphUpload, stream, false,
                  mi::real_call(&Driver::cuGraphUpload, executable, stream));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphUpload_ptsz(CUgraphExec executable, CUstream stream) {
    return upload(Api::cuGraphUpload_ptsz, stream, true,
                  mi::real_call(&Driver::cuGraphUpload_ptsz, executable, stream));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
    return destroy(Api::cuGraphDestroy, graph, mi::real_call(&Driver::cuGraphDestroy, graph));
}

MEMLAB_EXPORT CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec executable) {
    return destroy(Api::cuGraphExecDestroy, executable,
                   mi::real_call(&Driver::cuGraphExecDestroy, executable));
}
