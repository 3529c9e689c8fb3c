// An executable graph whose copies and fills are moved to other buffers, by an update of the whole
// and of single nodes: buffers allocated before, while this stream captured in relaxed mode, while
// it captured in global mode by a thread of relaxed mode, in the middle of large ones, and mixed.
// Prints every answer and whether the launch did what the graph says.
//
// Recorded: all allocations; nothing live at the end.

#include "program.hpp"

using namespace program;

namespace {

constexpr std::size_t bytes = std::size_t{3} << 20;

struct Buffers {
    CUdeviceptr from;
    CUdeviceptr to;
};

/// A fill, a copy within the device and one to the host and back.
CUgraph capture(CUstream stream, Buffers buffers, void* host, unsigned char value) {
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD8Async(buffers.from, value, bytes, stream));
    CHECK(cuMemcpyDtoDAsync(buffers.to, buffers.from, bytes, stream));
    CHECK(cuMemcpyDtoHAsync(host, buffers.to, bytes, stream));
    CHECK(cuMemcpyHtoDAsync(buffers.from, host, bytes, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

Buffers allocate_in_a_capture(CUstream stream, CUstreamCaptureMode mode) {
    CUstreamCaptureMode mine = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mine));
    CHECK(cuStreamBeginCapture(stream, mode));
    const Buffers made{allocate(bytes), allocate(bytes)};
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuThreadExchangeStreamCaptureMode(&mine));
    return made;
}

CUDA_MEMCPY3D to_host(CUdeviceptr source, void* host) {
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = source;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = host;
    copy.WidthInBytes = bytes;
    copy.Height = 1;
    copy.Depth = 1;
    return copy;
}

/// Of a graph that is one copy to the host: moves that to another source.
CUresult move_a_node(CUdeviceptr source, CUdeviceptr other, void* host) {
    CUcontext context = nullptr;
    CHECK(cuCtxGetCurrent(&context));
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    CHECK(cuGraphCreate(&graph, 0));
    const CUDA_MEMCPY3D copy = to_host(source, host);
    CHECK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    const CUDA_MEMCPY3D moved = to_host(other, host);
    const CUresult result = cuGraphExecMemcpyNodeSetParams(exec, node, &moved, context);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    return result;
}

}  // namespace

int main() {
    use_device();
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void* host = nullptr;
    CHECK(cuMemHostAlloc(&host, bytes, 0));

    const Buffers before{allocate(bytes), allocate(bytes)};
    release(allocate(bytes));  // a cache could answer
    const Buffers relaxed = allocate_in_a_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    const Buffers global = allocate_in_a_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    const CUdeviceptr large = allocate(std::size_t{100} << 20);

    struct Case {
        const char* what;
        Buffers buffers;
    };
    const Case cases[] = {
        {"in a relaxed capture", relaxed},
        {"in a global capture", global},
        {"mixed", {before.from, relaxed.to}},
        {"inside of a large one", {large + (30 << 20), large + (63 << 20)}},
        {"back", before},
    };
    CUgraph first = capture(stream, before, host, 1);
    CUgraphExec exec = nullptr;
    CHECK(cuGraphInstantiateWithFlags(&exec, first, 0));
    unsigned char value = 1;
    for (const Case& each : cases) {
        CUgraph graph = capture(stream, each.buffers, host, ++value);
        CUgraphExecUpdateResultInfo info = {};
        const CUresult updated = cuGraphExecUpdate(exec, graph, &info);
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        SAY("%s: %d, result %d, contents %s\n", each.what, static_cast<int>(updated),
            static_cast<int>(info.result),
            static_cast<unsigned char*>(host)[bytes - 1] == value ? "right" : "wrong");
        SAY("a node alone: %d\n",
            static_cast<int>(move_a_node(before.from, each.buffers.to, host)));
        CHECK(cuGraphDestroy(graph));
    }
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(first));
    for (const CUdeviceptr block :
         {before.from, before.to, relaxed.from, relaxed.to, global.from, global.to, large}) {
        release(block);
    }
    CHECK(cuMemFreeHost(host));
    CHECK(cuStreamDestroy(stream));
    return 0;
}
