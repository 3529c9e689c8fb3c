// Graphs whose copies and fills use memory of another context than the one they run in, which is
// freed and had again while they run. A copy needs no peer access for that, and the graph may have
// got its address in any way that CUDA has.
//
//   graph_copies stream      freed in the order of the stream that the graph was launched in
//   graph_copies unordered   freed at once: with plain CUDA blocks are overwritten, with memlab,
//                            whose fences cover the context in which the graph runs, none
//
// Prints OK, or BAD and how many rounds went wrong (exit code 1).
//
// Recorded: device: 2 contexts with 3 blocks, 12 ways by 7 streams with 2 blocks.
#include <cuda.h>

#include <cstring>
#include <iterator>

#include "tests/programs/foreign_work.hpp"

using namespace program;

namespace {

enum class Way {
    copy_node,
    fill_node,
    any_copy_node,
    any_fill_node,
    node_changed,
    executable_changed,
    any_executable_changed,
    captured_copy,
    captured_fill,
    child_graph,
    cloned_graph,
    updated_executable,
};
constexpr int ways = static_cast<int>(Way::updated_executable) + 1;

CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.srcPitch = foreign_bytes;
    copy.srcHeight = 1;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    copy.dstPitch = foreign_bytes;
    copy.dstHeight = 1;
    copy.WidthInBytes = foreign_bytes;
    copy.Height = 1;
    copy.Depth = 1;
    return copy;
}

CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to) {
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = to;
    fill.value = 0xee;
    fill.elementSize = 1;
    fill.width = foreign_bytes;
    fill.height = 1;
    return fill;
}

CUgraph new_graph() {
    CUgraph graph = nullptr;
    CHECK(cuGraphCreate(&graph, 0));
    return graph;
}

CUgraphNode add_copy(CUgraph graph, CUdeviceptr to, CUdeviceptr from, CUcontext context) {
    const CUDA_MEMCPY3D copy = copy_of(to, from);
    CUgraphNode node = nullptr;
    CHECK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
    return node;
}

CUgraphNodeParams any_copy(CUdeviceptr to, CUdeviceptr from, CUcontext context) {
    CUgraphNodeParams parameters{};
    parameters.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    parameters.memcpy.copyCtx = context;
    parameters.memcpy.copyParams = copy_of(to, from);
    return parameters;
}

CUgraphNodeParams any_fill(CUdeviceptr to, CUcontext context) {
    CUgraphNodeParams parameters{};
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(to);
    parameters.type = CU_GRAPH_NODE_TYPE_MEMSET;
    parameters.memset.dst = fill.dst;
    parameters.memset.value = fill.value;
    parameters.memset.elementSize = fill.elementSize;
    parameters.memset.width = fill.width;
    parameters.memset.height = fill.height;
    parameters.memset.ctx = context;
    return parameters;
}

/// Ends up copying to, or filling, `block` in the current context; `source` and `unused` are that
/// context's own.
CUgraphExec executable(Way way, CUdeviceptr block, CUdeviceptr source, CUdeviceptr unused,
                       const Worker& worker) {
    const CUcontext context = worker.context;
    CUgraph graph = nullptr;
    CUgraph other = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec made = nullptr;
    const CUDA_MEMCPY3D copy = copy_of(block, source);
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(block);
    CUgraphNodeParams any = any_copy(block, source, context);
    switch (way) {
        case Way::copy_node:
            graph = new_graph();
            add_copy(graph, block, source, context);
            break;
        case Way::fill_node:
            graph = new_graph();
            CHECK(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context));
            break;
        case Way::any_copy_node:
            graph = new_graph();
            CHECK(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &any));
            break;
        case Way::any_fill_node:
            graph = new_graph();
            any = any_fill(block, context);
            CHECK(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &any));
            break;
        case Way::node_changed:
            graph = new_graph();
            node = add_copy(graph, unused, source, context);
            CHECK(cuGraphMemcpyNodeSetParams(node, &copy));
            break;
        case Way::executable_changed:
            graph = new_graph();
            node = add_copy(graph, unused, source, context);
            CHECK(cuGraphInstantiate(&made, graph, 0));
            CHECK(cuGraphExecMemcpyNodeSetParams(made, node, &copy, context));
            break;
        case Way::any_executable_changed:
            graph = new_graph();
            node = add_copy(graph, unused, source, context);
            CHECK(cuGraphInstantiate(&made, graph, 0));
            CHECK(cuGraphExecNodeSetParams(made, node, &any));
            break;
        case Way::captured_copy:
        case Way::captured_fill:
            CHECK(cuStreamBeginCapture(worker.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
            if (way == Way::captured_copy) {
                CHECK(cuMemcpyDtoDAsync(block, source, foreign_bytes, worker.stream));
            } else {
                CHECK(cuMemsetD8Async(block, 0xee, foreign_bytes, worker.stream));
            }
            CHECK(cuStreamEndCapture(worker.stream, &graph));
            break;
        case Way::child_graph:
            graph = new_graph();
            other = new_graph();
            add_copy(other, block, source, context);
            CHECK(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, other));
            break;
        case Way::cloned_graph:
            other = new_graph();
            add_copy(other, block, source, context);
            CHECK(cuGraphClone(&graph, other));
            break;
        case Way::updated_executable: {
            graph = new_graph();
            add_copy(graph, unused, source, context);
            CHECK(cuGraphInstantiate(&made, graph, 0));
            other = new_graph();
            add_copy(other, block, source, context);
            CUgraphExecUpdateResultInfo info{};
            CHECK(cuGraphExecUpdate(made, other, &info));
            break;
        }
    }
    if (made == nullptr) {
        CHECK(cuGraphInstantiate(&made, graph, 0));
    }
    CHECK(cuGraphDestroy(graph));
    if (other != nullptr) {
        CHECK(cuGraphDestroy(other));
    }
    return made;
}

CUstream green_stream(CUgreenCtx* green) {
    CUdevResource resource{};
    CUdevResource part{};
    CUdevResourceDesc description = nullptr;
    CUstream stream = nullptr;
    unsigned groups = 1;
    CHECK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevSmResourceSplitByCount(&part, &groups, &resource, nullptr, 0, 8));
    CHECK(cuDevResourceGenerateDesc(&description, &part, 1));
    CHECK(cuGreenCtxCreate(green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(cuGreenCtxStreamCreate(&stream, *green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

}  // namespace

int main(int argc, char** argv) {
    Free how = Free::in_stream;
    if (argc == 2 && std::strcmp(argv[1], "unordered") == 0) {
        how = Free::at_once;
    } else if (argc != 2 || std::strcmp(argv[1], "stream") != 0) {
        return 2;
    }
    const CUcontext primary = use_device();
    CUcontext created = nullptr;
    CHECK(program::create_context(&created));
    const Worker one(primary);
    const Worker two(created);
    CUgreenCtx green = nullptr;
    const CUstream in_green = green_stream(&green);
    const struct {
        const Worker& home;
        const Worker& other;
        CUstream stream;
    } pairs[] = {
        {one, two, two.stream}, {one, two, CU_STREAM_LEGACY}, {one, two, CU_STREAM_PER_THREAD},
        {two, one, one.stream}, {two, one, CU_STREAM_LEGACY}, {two, one, CU_STREAM_PER_THREAD},
        {two, one, in_green},
    };
    CUdeviceptr sources[2] = {one.block(), two.block()};
    int wrong = 0;
    for (const auto& pair : pairs) {
        const Worker& other = pair.other;
        const CUdeviceptr source = sources[&other == &one ? 0 : 1];
        for (int way = 0; way < ways; ++way) {
            CUgraphExec made = nullptr;
            wrong += reuse(pair.home, other, pair.stream, how,
                           [&](CUdeviceptr block) {
                               // What is not used: a part of what the stream waits with.
                               made = executable(static_cast<Way>(way), block, source,
                                                 other.waiting[0], other);
                               CHECK(cuGraphLaunch(made, pair.stream));
                           })
                         ? 0
                         : 1;
            CHECK(cuGraphExecDestroy(made));
        }
    }
    one.use();
    release(sources[0]);
    two.use();
    release(sources[1]);
    one.done();
    two.done();
    CHECK(cuStreamDestroy(in_green));
    CHECK(cuGreenCtxDestroy(green));
    const int rounds = ways * static_cast<int>(std::size(pairs));
    if (wrong != 0) {
        SAY("BAD: %d of %d blocks overwritten\n", wrong, rounds);
        return 1;
    }
    SAY("OK: none of %d blocks overwritten\n", rounds);
    return 0;
}
