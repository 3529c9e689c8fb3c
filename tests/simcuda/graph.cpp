#include "tests/simcuda/graph.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/capture.hpp"
#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/race.hpp"
#include "tests/simcuda/statistics.hpp"
#include "tests/simcuda/transfer.hpp"

namespace memlab::simcuda {
namespace {

// Physical memory behind an allocation node of one executable graph.
struct GraphMemory {
    uint64_t bytes;
    std::shared_ptr<Physical> physical;
};

// A node of the graph or of a child graph.
struct Step {
    uint64_t node = 0;
    Work work;
};

struct Exec {
    std::vector<Step> steps;  // in the order in which they run
    Context* context = nullptr;
    unsigned long long flags = 0;
    bool uploaded = false;
    std::map<uint64_t, GraphMemory> memory;  // by address
};

struct Graphs {
    std::set<Graph*> graphs;
    std::set<Node*> nodes;
    std::set<Exec*> execs;
    std::map<uint64_t, uint64_t> reserved;  // address, bytes: for as long as the process lives
    uint64_t last_node = 0;
};

Graphs& graphs() {
    static Graphs& once = *new Graphs;
    return once;
}

Exec* find_exec(CUgraphExec handle) {
    auto* exec = reinterpret_cast<Exec*>(handle);
    return graphs().execs.contains(exec) ? exec : nullptr;
}

CUresult find_dependencies(const CUgraphNode* handles, size_t count, std::vector<Node*>& nodes) {
    if (count != 0 && handles == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; ++i) {
        Node* node = find_node(handles[i]);
        if (node == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        nodes.push_back(node);
    }
    return CUDA_SUCCESS;
}

CUresult add(CUgraphNode* out, CUgraph hGraph, const CUgraphNode* dependencies, size_t count,
             Work work, Node** made = nullptr) {
    Graph* graph = find_graph(hGraph);
    if (out == nullptr || graph == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<Node*> nodes;
    if (CUresult error = find_dependencies(dependencies, count, nodes)) {
        return error;
    }
    Node& node = add_node(*graph, std::move(work), std::move(nodes));
    *out = handle(&node);
    if (made != nullptr) {
        *made = &node;
    }
    return CUDA_SUCCESS;
}

CUresult add_allocation(CUgraphNode* out, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    Graph* graph = find_graph(hGraph);
    if (graph == nullptr || parameters == nullptr || parameters->bytesize == 0 ||
        find_device(parameters->poolProps.location.id) == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    work.memory_bytes = parameters->bytesize;
    work.memory = reserve_graph_memory(*context, parameters->bytesize);
    if (work.memory == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    parameters->dptr = work.memory;
    Node* node = nullptr;
    const CUresult result = add(out, hGraph, dependencies, count, std::move(work), &node);
    if (result == CUDA_SUCCESS) {
        node->allocation = *parameters;
    }
    return result;
}

CUresult add_free(CUgraphNode* out, CUgraph hGraph, const CUgraphNode* dependencies, size_t count,
                  CUdeviceptr address) {
    const Graph* graph = find_graph(hGraph);
    if (graph != nullptr && !may_free_in(*graph, address)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    work.memory = address;
    return add(out, hGraph, dependencies, count, std::move(work));
}

// A graph's nodes with those of its child graphs in their place.
void add_steps(const Graph& graph, std::vector<Step>& steps) {
    for (const auto& node : graph.nodes) {
        if (node->child != nullptr) {
            add_steps(*node->child, steps);
        } else {
            steps.push_back({node->id, node->work});
        }
    }
}

std::vector<Step> steps_of(const Graph& graph) {
    std::vector<Step> steps;
    add_steps(graph, steps);
    return steps;
}

bool same_shape(const std::vector<Step>& a, const std::vector<Step>& b) {
    return std::equal(
        a.begin(), a.end(), b.begin(), b.end(),
        [](const Step& one, const Step& other) { return one.work.type == other.work.type; });
}

// What a copy in an executable graph may not be moved between (measured on an H200): cuMemAlloc's
// and managed memory, mapped and pools' memory, the host's.
enum class Sort { host, allocated, mapped };

Sort sort_of(uint64_t address) {
    if (const Allocation* allocation = find_allocation(address)) {
        switch (allocation->kind) {
            case Kind::vmm:
            case Kind::async:
            case Kind::graph:
                return Sort::mapped;
            case Kind::pinned:
            case Kind::registered:
                return Sort::host;
            default:
                return Sort::allocated;
        }
    }
    return reservation_of(address).second != 0 ? Sort::mapped : Sort::host;
}

bool can_become(const Work& old, const Work& fresh) {
    return old.type == fresh.type &&
           (old.type != CU_GRAPH_NODE_TYPE_MEMCPY ||
            std::equal(old.accesses.begin(), old.accesses.end(), fresh.accesses.begin(),
                       fresh.accesses.end(), [](const Access& one, const Access& other) {
                           return one.write == other.write &&
                                  sort_of(one.address) == sort_of(other.address);
                       }));
}

CUresult fill_exec(Exec& exec, const Graph& graph) {
    std::vector<Step> steps = steps_of(graph);
    for (const Step& step : steps) {
        const Work& work = step.work;
        if (work.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || exec.memory.contains(work.memory)) {
            continue;
        }
        const uint64_t bytes = work.memory_bytes;
        const int device = graph.context != nullptr ? graph.context->device : 0;
        if (check_allocation_faults(bytes) != CUDA_SUCCESS) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        auto physical = Physical::create(device, round_up(bytes, page_bytes));
        if (!physical) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        exec.memory.emplace(work.memory, GraphMemory{bytes, std::move(physical)});
    }
    // Nodes keep their numbers over updates: the program goes on naming those it began with.
    for (size_t i = 0; i < exec.steps.size(); ++i) {
        steps[i].node = exec.steps[i].node;
    }
    exec.steps = std::move(steps);
    return CUDA_SUCCESS;
}

// A capture takes a fill of any device address.
bool has_bad_fill(const Graph& graph) {
    const std::vector<Step> steps = steps_of(graph);
    return std::any_of(steps.begin(), steps.end(), [](const Step& step) {
        return step.work.type == CU_GRAPH_NODE_TYPE_MEMSET && !can_fill(step.work.fill);
    });
}

CUresult instantiate(CUgraphExec* out, CUgraph hGraph, unsigned long long flags) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    Graph* graph = find_graph(hGraph);
    if (out == nullptr || graph == nullptr || has_bad_fill(*graph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto exec = std::make_unique<Exec>();
    exec->context = &root(*context);
    exec->flags = flags;
    if (CUresult error = fill_exec(*exec, *graph)) {
        return error;
    }
    if (!take(*exec->context, Taken::graph)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    graphs().execs.insert(exec.get());
    *out = reinterpret_cast<CUgraphExec>(exec.release());
    return CUDA_SUCCESS;
}

void begin_allocation(Exec& exec, const Work& work) {
    const GraphMemory& memory = exec.memory.at(work.memory);
    Allocation allocation;
    allocation.base = work.memory;
    allocation.bytes = memory.bytes;
    allocation.reserved = memory.physical->bytes();
    allocation.kind = Kind::graph;
    allocation.context = exec.context;
    allocation.device = exec.context->device;
    allocation.buffer_id = next_buffer_id();
    allocation.physical = memory.physical;
    map_pages(work.memory, allocation.reserved, *memory.physical, 0, true);
    count_live(static_cast<int64_t>(memory.bytes));
    allocations().emplace(work.memory, std::move(allocation));
}

CUresult upload(Exec& exec) {
    if (!exec.uploaded && !take(*exec.context, Taken::upload)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec.uploaded = true;
    return CUDA_SUCCESS;
}

// Allocations appear when the launch is submitted, so that work submitted behind it may name them;
// what the graph frees goes when the launch completes.
CUresult launch(CUgraphExec hGraphExec, CUstream hStream) {
    Exec* exec = find_exec(hGraphExec);
    Stream* stream = nullptr;
    if (exec == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (CUresult refused = refuse_while_capturing(*stream)) {
        return refused;
    }
    if (CUresult error = upload(*exec)) {
        return error;
    }
    for (const Step& step : exec->steps) {
        const Work& work = step.work;
        if (work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && allocations().contains(work.memory)) {
            if ((exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            wait_for_context(*exec->context);
            release_allocation(work.memory);
        }
    }
    for (const Step& step : exec->steps) {
        if (step.work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            begin_allocation(*exec, step.work);
        }
    }
    for (const Step& step : exec->steps) {
        const Work& work = step.work;
        Work copy = work;
        if (work.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
            copy.action = [address = work.memory] { release_allocation(address); };
        }
        submit(*stream, std::move(copy));
    }
    return CUDA_SUCCESS;
}

CUresult list_nodes(const std::vector<Node*>& nodes, CUgraphNode* out, size_t* count) {
    if (count == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (out == nullptr) {
        *count = nodes.size();
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < *count; ++i) {
        out[i] = i < nodes.size() ? handle(nodes[i]) : nullptr;
    }
    *count = std::min(*count, nodes.size());
    return CUDA_SUCCESS;
}

Work kernel_work() {
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_KERNEL;
    return work;
}

// The context that a node is for, where one is named.
bool may_run_in(CUcontext handle) {
    const Context* context = find_context(handle);
    return handle == nullptr || (context != nullptr && context->alive);
}

CUresult add_copy(CUgraphNode* out, CUgraph hGraph, const CUgraphNode* dependencies, size_t count,
                  const CUDA_MEMCPY3D* parameters, CUcontext context) {
    Work work;
    if (CUresult error = copy_node(parameters, work)) {
        return error;
    }
    return may_run_in(context) ? add(out, hGraph, dependencies, count, std::move(work))
                               : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult add_fill(CUgraphNode* out, CUgraph hGraph, const CUgraphNode* dependencies, size_t count,
                  const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context) {
    Work work;
    if (CUresult error = fill_node(parameters, work)) {
        return error;
    }
    return may_run_in(context) ? add(out, hGraph, dependencies, count, std::move(work))
                               : CUDA_ERROR_INVALID_CONTEXT;
}

CUDA_MEMSET_NODE_PARAMS without_context(const CUDA_MEMSET_NODE_PARAMS_v2& p) {
    return {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height};
}

CUresult change(CUgraphNode hNode, Work work) {
    Node* node = find_node(hNode);
    if (node == nullptr || node->work.type != work.type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    node->work = std::move(work);
    return CUDA_SUCCESS;
}

// The node may have changed, or gone, since the executable graph was made.
CUresult change(CUgraphExec hExec, CUgraphNode hNode, Work work) {
    Exec* exec = find_exec(hExec);
    const Node* node = find_node(hNode);
    if (exec == nullptr || node == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (Step& step : exec->steps) {
        if (step.node == node->id && can_become(step.work, work)) {
            step.work = std::move(work);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

// The work of a node's new parameters.
CUresult work_of(const CUgraphNodeParams* parameters, Work& work) {
    if (parameters == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (parameters->type) {
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return copy_node(&parameters->memcpy.copyParams, work);
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            const CUDA_MEMSET_NODE_PARAMS fill = without_context(parameters->memset);
            return fill_node(&fill, work);
        }
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

// Null when there are memory nodes in it, which cannot be copied.
Graph* copy_of(const Graph& original) {
    Graph& copy = *add_graph(original.context);
    std::map<const Node*, Node*> twin;
    for (const auto& node : original.nodes) {
        Graph* const child = node->child != nullptr ? copy_of(*node->child) : nullptr;
        if ((node->child != nullptr && child == nullptr) ||
            node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
            node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
            destroy_graph(copy);
            return nullptr;
        }
        std::vector<Node*> dependencies;
        for (const Node* before : node->dependencies) {
            dependencies.push_back(twin.at(before));
        }
        twin[node.get()] = &add_node(copy, node->work, std::move(dependencies));
        twin[node.get()]->child = child;
        if (child != nullptr) {
            child->is_child = true;
        }
    }
    return &copy;
}

CUresult add_child(CUgraphNode* out, CUgraph hGraph, const CUgraphNode* dependencies, size_t count,
                   CUgraph hChild) {
    const Graph* original = find_graph(hChild);
    if (original == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Graph* const child = copy_of(*original);
    if (child == nullptr) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_GRAPH;
    Node* node = nullptr;
    const CUresult result = add(out, hGraph, dependencies, count, std::move(work), &node);
    if (result == CUDA_SUCCESS) {
        child->is_child = true;
        node->child = child;
    } else {
        destroy_graph(*child);
    }
    return result;
}

}  // namespace

Graph* add_graph(Context* context) {
    auto* graph = new Graph;
    graph->context = context;
    graphs().graphs.insert(graph);
    return graph;
}

Graph* find_graph(CUgraph handle) {
    auto* graph = reinterpret_cast<Graph*>(handle);
    return graphs().graphs.contains(graph) ? graph : nullptr;
}

void destroy_graph(Graph& graph) {
    for (const auto& node : graph.nodes) {
        graphs().nodes.erase(node.get());
        if (node->child != nullptr) {
            destroy_graph(*node->child);
        }
    }
    graphs().graphs.erase(&graph);
    delete &graph;
}

CUgraph handle(Graph* graph) {
    return reinterpret_cast<CUgraph>(graph);
}

CUgraphNode handle(Node* node) {
    return reinterpret_cast<CUgraphNode>(node);
}

Node* find_node(CUgraphNode handle) {
    auto* node = reinterpret_cast<Node*>(handle);
    return graphs().nodes.contains(node) ? node : nullptr;
}

Node& add_node(Graph& graph, Work work, std::vector<Node*> dependencies) {
    auto node = std::make_unique<Node>();
    node->graph = &graph;
    node->id = ++graphs().last_node;
    node->work = std::move(work);
    node->dependencies = std::move(dependencies);
    graphs().nodes.insert(node.get());
    graph.nodes.push_back(std::move(node));
    return *graph.nodes.back();
}

uint64_t reserve_graph_memory(Context&, uint64_t bytes) {
    const uint64_t address = reserve_addresses(bytes);
    if (address != 0) {
        graphs().reserved.emplace(address, round_up(bytes, page_bytes));
    }
    return address;
}

bool is_graph_memory(uint64_t address, uint64_t bytes) {
    auto& reserved = graphs().reserved;
    auto it = reserved.upper_bound(address);
    return it != reserved.begin() &&
           address + bytes <= std::prev(it)->first + std::prev(it)->second;
}

bool may_free_in(const Graph& graph, uint64_t address) {
    const Allocation* allocation = find_allocation(address);
    const bool stream_ordered =
        is_graph_memory(address, 1) || (allocation != nullptr && allocation->pool != nullptr);
    return stream_ordered &&
           std::none_of(graph.nodes.begin(), graph.nodes.end(), [address](const auto& node) {
               return node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
                      node->work.memory == address;
           });
}

}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (phGraph == nullptr || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phGraph = handle(add_graph(&root(*context)));
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphDestroy(CUgraph hGraph) {
    Graph* graph = find_graph(hGraph);
    if (graph == nullptr || graph->is_child) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    destroy_graph(*graph);
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
    const Graph* original = find_graph(originalGraph);
    if (phGraphClone == nullptr || original == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Graph* const clone = copy_of(*original);
    if (clone == nullptr) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *phGraphClone = handle(clone);
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, Work{});
}

CUresult sim_cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
    return nodeParams == nullptr
               ? CUDA_ERROR_INVALID_VALUE
               : add(phGraphNode, hGraph, dependencies, numDependencies, kernel_work());
}

CUresult sim_cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                     const CUgraphNode* dependencies, size_t numDependencies,
                                     const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
    return nodeParams == nullptr
               ? CUDA_ERROR_INVALID_VALUE
               : add(phGraphNode, hGraph, dependencies, numDependencies, kernel_work());
}

CUresult sim_cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
    return add_copy(phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx);
}

CUresult sim_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
    Work work;
    const CUresult error = copy_node(nodeParams, work);
    return error != CUDA_SUCCESS ? error : change(hNode, std::move(work));
}

CUresult sim_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_MEMCPY3D* copyParams, CUcontext) {
    Work work;
    const CUresult error = copy_node(copyParams, work);
    return error != CUDA_SUCCESS ? error : change(hGraphExec, hNode, std::move(work));
}

CUresult sim_cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
    return add_fill(phGraphNode, hGraph, dependencies, numDependencies, memsetParams, ctx);
}

CUresult sim_cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
    const Node* node = find_node(hNode);
    if (nodeParams == nullptr || node == nullptr || node->work.type != CU_GRAPH_NODE_TYPE_MEMSET) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *nodeParams = node->work.fill;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphMemsetNodeSetParams(CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
    Work work;
    const CUresult error = fill_node(nodeParams, work);
    return error != CUDA_SUCCESS ? error : change(hNode, std::move(work));
}

CUresult sim_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                            CUcontext) {
    Work work;
    const CUresult error = fill_node(memsetParams, work);
    return error != CUDA_SUCCESS ? error : change(hGraphExec, hNode, std::move(work));
}

CUresult sim_cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
    Work work;
    const CUresult error = work_of(nodeParams, work);
    return error != CUDA_SUCCESS ? error : change(hNode, std::move(work));
}

CUresult sim_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      CUgraphNodeParams* nodeParams) {
    Work work;
    const CUresult error = work_of(nodeParams, work);
    return error != CUDA_SUCCESS ? error : change(hGraphExec, hNode, std::move(work));
}

CUresult sim_cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                      const CUgraphNode* dependencies, size_t numDependencies,
                                      CUgraph childGraph) {
    return add_child(phGraphNode, hGraph, dependencies, numDependencies, childGraph);
}

CUresult sim_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
    const Node* node = find_node(hNode);
    if (phGraph == nullptr || node == nullptr || node->child == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phGraph = handle(node->child);
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                CUgraph childGraph) {
    Exec* exec = find_exec(hGraphExec);
    const Node* node = find_node(hNode);
    const Graph* child = find_graph(childGraph);
    if (exec == nullptr || child == nullptr || node == nullptr || node->child == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const std::vector<Step> old = steps_of(*node->child);
    std::vector<Step> fresh = steps_of(*child);
    if (!same_shape(old, fresh)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (Step& step : exec->steps) {
        for (size_t i = 0; i < old.size(); ++i) {
            if (step.node == old[i].node) {
                step.work = std::move(fresh[i].work);
            }
        }
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                const CUDA_HOST_NODE_PARAMS* nodeParams) {
    if (nodeParams == nullptr || nodeParams->fn == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_HOST;
    work.calls_host = true;
    work.action = [p = *nodeParams] { p.fn(p.userData); };
    return add(phGraphNode, hGraph, dependencies, numDependencies, std::move(work));
}

CUresult sim_cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                    const CUgraphNode* dependencies, size_t numDependencies,
                                    CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
    return add_allocation(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult sim_cuGraphMemAllocNodeGetParams(CUgraphNode hNode,
                                          CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
    const Node* node = find_node(hNode);
    if (params_out == nullptr || node == nullptr ||
        node->work.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *params_out = node->allocation;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                   const CUgraphNode* dependencies, size_t numDependencies,
                                   CUdeviceptr dptr) {
    return add_free(phGraphNode, hGraph, dependencies, numDependencies, dptr);
}

CUresult sim_cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
    const Node* node = find_node(hNode);
    if (dptr_out == nullptr || node == nullptr || node->work.type != CU_GRAPH_NODE_TYPE_MEM_FREE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *dptr_out = node->work.memory;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            CUgraphNodeParams* nodeParams) {
    if (nodeParams == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (nodeParams->type) {
        case CU_GRAPH_NODE_TYPE_EMPTY:
            return sim_cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies);
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return add(phGraphNode, hGraph, dependencies, numDependencies, kernel_work());
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return add_copy(phGraphNode, hGraph, dependencies, numDependencies,
                            &nodeParams->memcpy.copyParams, nodeParams->memcpy.copyCtx);
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            const CUDA_MEMSET_NODE_PARAMS fill = without_context(nodeParams->memset);
            return add_fill(phGraphNode, hGraph, dependencies, numDependencies, &fill,
                            nodeParams->memset.ctx);
        }
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return add_child(phGraphNode, hGraph, dependencies, numDependencies,
                             nodeParams->graph.graph);
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return add_free(phGraphNode, hGraph, dependencies, numDependencies,
                            nodeParams->free.dptr);
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
            CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
            parameters.poolProps = nodeParams->alloc.poolProps;
            parameters.accessDescs = nodeParams->alloc.accessDescs;
            parameters.accessDescCount = nodeParams->alloc.accessDescCount;
            parameters.bytesize = nodeParams->alloc.bytesize;
            const CUresult result =
                add_allocation(phGraphNode, hGraph, dependencies, numDependencies, &parameters);
            nodeParams->alloc.dptr = parameters.dptr;
            return result;
        }
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult sim_cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                               const CUgraphNode* dependencies, const CUgraphEdgeData*,
                               size_t numDependencies, CUgraphNodeParams* nodeParams) {
    return sim_cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult sim_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
    const Node* node = find_node(hNode);
    if (node == nullptr || type == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *type = node->work.type;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
    const Graph* graph = find_graph(hGraph);
    if (graph == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<Node*> all;
    for (const auto& node : graph->nodes) {
        all.push_back(node.get());
    }
    return list_nodes(all, nodes, numNodes);
}

CUresult sim_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
    const Graph* graph = find_graph(hGraph);
    if (graph == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<Node*> roots;
    for (const auto& node : graph->nodes) {
        if (node->dependencies.empty()) {
            roots.push_back(node.get());
        }
    }
    return list_nodes(roots, rootNodes, numRootNodes);
}

CUresult sim_cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                        size_t* numDependencies) {
    const Node* node = find_node(hNode);
    return node == nullptr ? CUDA_ERROR_INVALID_VALUE
                           : list_nodes(node->dependencies, dependencies, numDependencies);
}

CUresult sim_cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode*, char*,
                                size_t) {
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult sim_cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode*, char*,
                                   size_t) {
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult sim_cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                         unsigned long long flags) {
    return instantiate(phGraphExec, hGraph, flags);
}

CUresult sim_cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                          CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
    if (instantiateParams == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult sim_cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
    const Exec* exec = find_exec(hGraphExec);
    if (exec == nullptr || flags == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                  CUgraphExecUpdateResultInfo* resultInfo) {
    Exec* exec = find_exec(hGraphExec);
    const Graph* graph = find_graph(hGraph);
    if (exec == nullptr || graph == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const std::vector<Step> fresh = steps_of(*graph);
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    if (!same_shape(exec->steps, fresh)) {
        result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    } else if (!std::equal(exec->steps.begin(), exec->steps.end(), fresh.begin(),
                           [](const Step& one, const Step& other) {
                               return can_become(one.work, other.work);
                           })) {
        result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    if (resultInfo != nullptr) {
        *resultInfo = {};
        resultInfo->result = result;
    }
    return result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? fill_exec(*exec, *graph)
                                                  : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult sim_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                               CUgraphExecUpdateResult* updateResult_out) {
    CUgraphExecUpdateResultInfo info{};
    const CUresult result = sim_cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    if (hErrorNode_out != nullptr) {
        *hErrorNode_out = nullptr;
    }
    if (updateResult_out != nullptr) {
        *updateResult_out = info.result;
    }
    return result;
}

CUresult sim_cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
    Stream* stream = nullptr;
    Exec* exec = find_exec(hGraphExec);
    if (exec == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    return upload(*exec);
}

CUresult sim_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
    return launch(hGraphExec, hStream);
}

CUresult sim_cuGraphExecDestroy(CUgraphExec hGraphExec) {
    Exec* exec = find_exec(hGraphExec);
    if (exec == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (exec->context->alive) {
        give_back(*exec->context, Taken::graph);
        if (exec->uploaded) {
            give_back(*exec->context, Taken::upload);
        }
    }
    graphs().execs.erase(exec);
    delete exec;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGraphMemTrim(CUdevice device) {
    return find_device(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute, void* value) {
    if (find_device(device) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (value == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t bytes = 0;
    for (const Exec* exec : graphs().execs) {
        for (const auto& [address, memory] : exec->memory) {
            if (memory.physical->device() == device) {
                bytes += memory.physical->bytes();
            }
        }
    }
    std::memcpy(value, &bytes, sizeof bytes);
    return CUDA_SUCCESS;
}
