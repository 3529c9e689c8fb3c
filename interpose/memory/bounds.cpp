#include "interpose/memory/bounds.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/nested_frees.hpp"
#include "interpose/driver/sticky_errors.hpp"
#include "interpose/memory/context_registry.hpp"
#include "interpose/memory/memory.hpp"

namespace memlab::interpose {
namespace {

constinit std::atomic<bool> any_captured_overrun{false};

bool node_has_overrun(Memory& memory, CUgraphNode node) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (call_real(&Driver::cuGraphNodeGetType, node, &type) != CUDA_SUCCESS) {
        return false;
    }
    if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
        CUDA_MEMSET_NODE_PARAMS fill{};
        return call_real(&Driver::cuGraphMemsetNodeGetParams, node, &fill) == CUDA_SUCCESS &&
               any_out_of_bounds(memory, static_cast<const CUDA_MEMSET_NODE_PARAMS*>(&fill));
    }
    CUgraph child = nullptr;
    return type == CU_GRAPH_NODE_TYPE_GRAPH &&
           call_real(&Driver::cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS &&
           has_overrun(memory, child);
}

}  // namespace

void note_captured_overrun() noexcept {
    any_captured_overrun.store(true, std::memory_order_relaxed);
}

bool has_overrun(Memory& memory, CUgraph graph) {
    std::size_t count = 0;
    if (!any_captured_overrun.load(std::memory_order_relaxed) ||
        call_real(&Driver::cuGraphGetNodes, graph, static_cast<CUgraphNode*>(nullptr), &count) !=
            CUDA_SUCCESS) {
        return false;
    }
    std::vector<CUgraphNode> nodes(count);
    if (call_real(&Driver::cuGraphGetNodes, graph, nodes.data(), &count) != CUDA_SUCCESS) {
        return false;
    }
    nodes.resize(std::min(count, nodes.size()));
    return std::any_of(nodes.begin(), nodes.end(),
                       [&memory](CUgraphNode node) { return node_has_overrun(memory, node); });
}

bool is_out_of_bounds(Memory& memory, CUdeviceptr address, std::size_t bytes) {
    Context* owner = memory.segments().find(address);
    if (owner == nullptr) {
        return false;
    }
    if (nested_frees.any()) {
        const std::optional<allocator::BlockInfo> block = owner->pool().find(address);
        if (block && nested_frees.has(block->address)) {
            return true;
        }
    }
    return owner->pool().reach(address, bytes) == allocator::Pool::Reach::outside;
}

CUresult out_of_bounds_result(CUstream stream) {
    if (is_default_stream(stream) && current_context() == nullptr) {
        return CUDA_SUCCESS;
    }
    const CUresult broken = broken_context();
    return broken != CUDA_SUCCESS ? broken : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace memlab::interpose
