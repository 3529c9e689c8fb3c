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

// What a call says of a node that copies or fills.
template <class Parameters>
struct NodeArguments {
    const Parameters* parameters = nullptr;
    CUcontext context = nullptr;

    void visit(const Parameters* argument) { parameters = argument; }
    void visit(CUcontext argument) { context = argument; }
    template <class Other>
    void visit(const Other& /*other*/) {}
};

template <class Parameters>
constexpr auto copy_or_fill = [](mi::Hooked, const auto& real, auto... arguments) {
    NodeArguments<Parameters> found;
    (found.visit(arguments), ...);
    return node(found.parameters, found.context, real);
};

constexpr auto set_node = [](mi::Hooked, const auto& real, auto... arguments) {
    return any_node(mi::last_of(arguments...), real);
};

constexpr auto add_alloc_node = [](mi::Hooked hooked, const auto& real, CUgraphNode*, CUgraph graph,
                                   const CUgraphNode*, size_t,
                                   CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    return mi::hook(
        [&](Session& session) {
            const CUresult result = mi::retry_after_release(session, real);
            if (result == CUDA_SUCCESS) {
                record_node(session, hooked.api, graph, parameters->dptr, parameters->bytesize);
            }
            return result;
        },
        real);
};

constexpr auto add_node = [](mi::Hooked hooked, const auto& real, CUgraphNode*, CUgraph graph,
                             auto... rest) {
    const CUgraphNodeParams* const parameters = mi::last_of(rest...);
    if (parameters == nullptr || parameters->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        return any_node(parameters, real);
    }
    return mi::hook(
        [&](Session& session) {
            const CUresult result = mi::retry_after_release(session, real);
            if (result == CUDA_SUCCESS) {
                record_node(session, hooked.api, graph, parameters->alloc.dptr,
                            parameters->alloc.bytesize);
            }
            return result;
        },
        real);
};

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

constexpr auto clone_graph = [](mi::Hooked, const auto& real, CUgraph* clone, CUgraph original) {
    return make_from(original, clone, real);
};

constexpr auto update_executable = [](mi::Hooked, const auto& real, CUgraphExec executable,
                                      CUgraph graph,
                                      auto...) { return make_from(graph, &executable, real); };

// Plain CUDA rejects a graph with a fill past the end of an allocation.
constexpr auto instantiate_graph = [](mi::Hooked hooked, const auto& real, CUgraphExec* executable,
                                      CUgraph graph, auto...) {
    return mi::hook(
        [&](Session& session) {
            if (mi::has_overrun(session, graph)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const CUresult result =
                mi::measured(session, {.kind = LedgerKind::graph}, hooked.api, real);
            if (result == CUDA_SUCCESS) {
                mi::graph_memory().share(graph, *executable);
            }
            return result;
        },
        real);
};

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

// A graph's memory is mapped at its first launch. A launch submits work. What an upload would have
// taken the first launch takes, if there was none.
constexpr auto launch_graph = [](mi::Hooked hooked, const auto& real, CUgraphExec executable,
                                 CUstream stream) {
    before_launch(stream, hooked.per_thread);
    const mi::WorkClock::Submission submission(mi::work_clock);
    if (mi::launched.knows_at_once(executable)) {
        return mi::call_and_sample(real);
    }
    mi::FirstLaunch first(LedgerKind::graph, executable);
    const CUresult result = mi::call_and_sample(real);
    first.done(hooked.api, result);
    return result;
};

// The ledger attributes what an upload takes to this call, not to the first launch.
constexpr auto upload_graph = [](mi::Hooked hooked, const auto& real, CUgraphExec,
                                 CUstream stream) {
    before_submit(stream, hooked.per_thread);
    const mi::WorkClock::Submission submission(mi::work_clock);
    return mi::hook(
        [&](Session& session) {
            return mi::measured(session, {.kind = LedgerKind::graph}, hooked.api, real);
        },
        real);
};

constexpr auto destroy_graph = [](mi::Hooked hooked, const auto& real, const void* graph) {
    return mi::hook(
        [&](Session& session) {
            const bool executable = hooked.api == Api::cuGraphExecDestroy;
            if (executable) {
                mi::launched.forget(mi::Launched::key(graph));
            }
            const CUresult result =
                executable ? mi::measured(session, {.kind = LedgerKind::graph, .returns = true},
                                          hooked.api, real)
                           : real();
            if (result == CUDA_SUCCESS) {
                mi::graph_memory().destroyed(session, hooked.api, graph);
            }
            return result;
        },
        real);
};

[[gnu::used]] void export_graph_functions() {
    MEMLAB_EXPORT_HOOK(cuGraphAddMemAllocNode, add_alloc_node);
    MEMLAB_EXPORT_PASSED(cuGraphAddMemFreeNode);
    MEMLAB_EXPORT_PASSED(cuGraphAddBatchMemOpNode);
    MEMLAB_EXPORT_PASSED(cuGraphBatchMemOpNodeSetParams);
    MEMLAB_EXPORT_PASSED(cuGraphExecBatchMemOpNodeSetParams);
    MEMLAB_EXPORT_PASSED(cuGraphAddChildGraphNode);
    MEMLAB_EXPORT_PASSED(cuGraphExecChildGraphNodeSetParams);
    MEMLAB_EXPORT_HOOK(cuGraphAddNode, add_node);
    MEMLAB_EXPORT_HOOK(cuGraphAddNode_v2, add_node);
    MEMLAB_EXPORT_HOOK(cuGraphAddNode_v3, add_node);

    MEMLAB_EXPORT_HOOK(cuGraphAddMemcpyNode, copy_or_fill<CUDA_MEMCPY3D>);
    MEMLAB_EXPORT_HOOK(cuGraphMemcpyNodeSetParams, copy_or_fill<CUDA_MEMCPY3D>);
    MEMLAB_EXPORT_HOOK(cuGraphExecMemcpyNodeSetParams, copy_or_fill<CUDA_MEMCPY3D>);
    MEMLAB_EXPORT_HOOK(cuGraphAddMemsetNode, copy_or_fill<CUDA_MEMSET_NODE_PARAMS>);
    MEMLAB_EXPORT_HOOK(cuGraphMemsetNodeSetParams, copy_or_fill<CUDA_MEMSET_NODE_PARAMS>);
    MEMLAB_EXPORT_HOOK(cuGraphExecMemsetNodeSetParams, copy_or_fill<CUDA_MEMSET_NODE_PARAMS>);
    MEMLAB_EXPORT_HOOK(cuGraphNodeSetParams, set_node);
    MEMLAB_EXPORT_HOOK(cuGraphNodeSetParams_v2, set_node);
    MEMLAB_EXPORT_HOOK(cuGraphExecNodeSetParams, set_node);

    MEMLAB_EXPORT_HOOK(cuGraphInstantiate, instantiate_graph);
    MEMLAB_EXPORT_HOOK(cuGraphInstantiate_v2, instantiate_graph);
    MEMLAB_EXPORT_HOOK(cuGraphInstantiateWithFlags, instantiate_graph);
    MEMLAB_EXPORT_HOOK(cuGraphInstantiateWithParams, instantiate_graph);
    MEMLAB_EXPORT_HOOK(cuGraphInstantiateWithParams_ptsz, instantiate_graph);
    MEMLAB_EXPORT_HOOK(cuGraphClone, clone_graph);
    MEMLAB_EXPORT_HOOK(cuGraphExecUpdate, update_executable);
    MEMLAB_EXPORT_HOOK(cuGraphExecUpdate_v2, update_executable);
    MEMLAB_EXPORT_HOOK(cuGraphLaunch, launch_graph);
    MEMLAB_EXPORT_HOOK(cuGraphLaunch_ptsz, launch_graph);
    MEMLAB_EXPORT_HOOK(cuGraphUpload, upload_graph);
    MEMLAB_EXPORT_HOOK(cuGraphUpload_ptsz, upload_graph);
    MEMLAB_EXPORT_HOOK(cuGraphDestroy, destroy_graph);
    MEMLAB_EXPORT_HOOK(cuGraphExecDestroy, destroy_graph);
}

}  // namespace
