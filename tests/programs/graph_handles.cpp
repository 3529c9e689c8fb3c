// Captures that take a fill past the end of an allocation: plain CUDA makes no graph executable
// that holds one, be it a copy or a child of what was captured. The captures that fail, and the
// graphs that are destroyed, leave handles behind that the driver gives to other graphs, and those
// are made executable like any.
//
// Prints what CUDA answers. Recorded: device: 3 allocations, 1 of them lost with its context.
#include <cuda.h>

#include <vector>

#include "tests/programs/program.hpp"

using namespace program;

namespace {

constexpr std::size_t bytes = (std::size_t{3} << 20) - 12;

void begin(CUstream stream, CUdeviceptr memory, std::size_t filled) {
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD8Async(memory, 1, filled, stream));
}

CUgraph captured(CUstream stream, CUdeviceptr memory, std::size_t filled) {
    CUgraph graph = nullptr;
    begin(stream, memory, filled);
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

int instantiated(CUgraph graph) {
    CUgraphExec made = nullptr;
    const CUresult answer = cuGraphInstantiate(&made, graph, 0);
    if (answer == CUDA_SUCCESS) {
        CHECK(cuGraphExecDestroy(made));
    }
    return static_cast<int>(answer);
}

/// Of many graphs, some of which have handles of what has gone: how many are refused.
int refused(CUstream stream, CUdeviceptr memory) {
    std::vector<CUgraph> graphs;
    int count = 0;
    for (int i = 0; i < 40; ++i) {
        CUgraph graph = nullptr;
        if (i % 2 == 0) {
            graph = captured(stream, memory, bytes);
        } else {
            CHECK(cuGraphCreate(&graph, 0));
        }
        count += instantiated(graph) != 0 ? 1 : 0;
        graphs.push_back(graph);
    }
    for (const CUgraph graph : graphs) {
        CHECK(cuGraphDestroy(graph));
    }
    return count;
}

}  // namespace

int main() {
    const CUcontext first = use_device();
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr memory = allocate(bytes);
    const CUdeviceptr neighbour = allocate(bytes);
    SAY("a fill to the end: %d refused\n", refused(stream, memory));

    CUgraph graph = captured(stream, memory, bytes + 4);
    SAY("a fill past the end: %d\n", instantiated(graph));
    CUgraph clone = nullptr;
    CHECK(cuGraphClone(&clone, graph));
    SAY("its clone: %d\n", instantiated(clone));
    CUgraph parent = nullptr;
    CUgraphNode child = nullptr;
    CHECK(cuGraphCreate(&parent, 0));
    CHECK(cuGraphAddChildGraphNode(&child, parent, nullptr, 0, graph));
    SAY("its parent: %d\n", instantiated(parent));
    CHECK(cuGraphDestroy(graph));
    SAY("its parent, the captured graph being gone: %d\n", instantiated(parent));
    CHECK(cuGraphDestroy(parent));
    CHECK(cuGraphDestroy(clone));
    SAY("afterwards: %d refused\n", refused(stream, memory));

    begin(stream, memory, bytes + 4);
    SAY("a query in the capture: %d\n", static_cast<int>(cuStreamQuery(stream)));
    SAY("its end: %d\n", static_cast<int>(cuStreamEndCapture(stream, &graph)));
    SAY("afterwards: %d refused\n", refused(stream, memory));

    CUstream gone = nullptr;
    CHECK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    begin(gone, memory, bytes + 4);
    CHECK(cuStreamDestroy(gone));
    SAY("a stream that ends in its capture: %d refused\n", refused(stream, memory));

    CUcontext second = nullptr;
    CHECK(program::create_context(&second));
    CHECK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    begin(gone, allocate(bytes), bytes + 4);
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(first));
    SAY("a context that ends in a capture: %d refused\n", refused(stream, memory));

    release(neighbour);
    release(memory);
    CHECK(cuStreamDestroy(stream));
    return 0;
}
