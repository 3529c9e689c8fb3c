// Calls at the edges: past the end of an allocation, into what was freed, after a fault, and where
// contexts end. As in calls_driver.cpp nothing is expected here; each group is a process of its
// own.
#include <cuda.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "tests/conformance/transcript.hpp"
#include "tests/programs/resolved_ipc.hpp"

using memlab::conformance::Group;
using memlab::conformance::run_group;
using memlab::conformance::transcript;

namespace {

constexpr std::size_t mib = 1 << 20;

// No multiple of the 512 bytes by which small allocations follow each other: what begins at the end
// of one that is may be the next.
constexpr std::size_t large = 3 * mib - 12;

CUcontext primary;
CUstream stream;

void start() {
    CALL(cuInit(0));
    CALL(cuDevicePrimaryCtxRetain(&primary, 0));
    CALL(cuCtxSetCurrent(primary));
    CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

/// An allocation between two others, and as much host memory and more.
struct Buffers {
    std::size_t bytes;
    CUdeviceptr before = 0;
    CUdeviceptr p = 0;
    CUdeviceptr after = 0;
    CUdeviceptr other = 0;  ///< twice the size: never the limit
    std::vector<unsigned char> host;

    explicit Buffers(std::size_t size) : bytes(size), host(2 * size + 65536) {
        transcript.value("bytes", static_cast<long long>(size));
        CALL(cuMemAlloc(&before, bytes));
        CALL(cuMemAlloc(&p, bytes));
        CALL(cuMemAlloc(&after, bytes));
        CALL(cuMemAlloc(&other, 2 * bytes + 65536));
        CALL(cuMemsetD8(before, 0x11, bytes));
        CALL(cuMemsetD8(p, 0x22, bytes));
        CALL(cuMemsetD8(after, 0x33, bytes));
    }
    ~Buffers() {
        unsigned char edges[3] = {};
        CALL(cuMemcpyDtoH(&edges[0], before + bytes - 1, 1));
        CALL(cuMemcpyDtoH(&edges[1], after, 1));
        transcript.value("the neighbours' bytes", edges[0] * 256 + edges[1]);
        for (const CUdeviceptr each : {before, p, after, other}) {
            CALL(cuMemFree(each));
        }
    }
};

CUDA_MEMCPY2D plane(CUdeviceptr to, const void* from, std::size_t pitch, std::size_t width,
                    std::size_t height) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    copy.srcPitch = pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    copy.dstPitch = pitch;
    copy.WidthInBytes = width;
    copy.Height = height;
    return copy;
}

CUDA_MEMCPY2D plane_back(void* to, CUdeviceptr from, std::size_t pitch, std::size_t width,
                         std::size_t height) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = from;
    copy.srcPitch = pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = to;
    copy.dstPitch = pitch;
    copy.WidthInBytes = width;
    copy.Height = height;
    return copy;
}

CUDA_MEMCPY3D volume(CUdeviceptr to, CUdeviceptr from, std::size_t width, std::size_t height,
                     std::size_t depth) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.srcPitch = width;
    copy.srcHeight = height;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    copy.dstPitch = width;
    copy.dstHeight = height;
    copy.WidthInBytes = width;
    copy.Height = height;
    copy.Depth = depth;
    return copy;
}

CUDA_MEMCPY3D_PEER peer_volume(CUdeviceptr to, CUdeviceptr from, std::size_t width) {
    CUDA_MEMCPY3D_PEER copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.srcContext = primary;
    copy.srcPitch = width;
    copy.srcHeight = 1;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    copy.dstContext = primary;
    copy.dstPitch = width;
    copy.dstHeight = 1;
    copy.WidthInBytes = width;
    copy.Height = 1;
    copy.Depth = 1;
    return copy;
}

// ---- groups -------------------------------------------------------------------------------------

void linear_copies(Buffers& b, std::size_t begin, std::size_t n) {
    const CUdeviceptr at = b.p + begin;
    CUdeviceptr o = b.other;
    void* h = b.host.data();
    CALL(cuMemcpyHtoD(at, h, n));
    CALL(cuMemcpyDtoH(h, at, n));
    CALL(cuMemcpyDtoD(at, o, n));
    CALL(cuMemcpyDtoD(o, at, n));
    CALL(cuMemcpyHtoDAsync(at, h, n, stream));
    CALL(cuMemcpyDtoHAsync(h, at, n, stream));
    CALL(cuMemcpyDtoDAsync(at, o, n, stream));
    CALL(cuMemcpyDtoDAsync(o, at, n, nullptr));
    CALL(cuMemcpyPeer(at, primary, o, primary, n));
    CALL(cuMemcpyPeer(o, primary, at, primary, n));
    CALL(cuMemcpyPeerAsync(at, primary, o, primary, n, stream));
    CALL(cuMemcpyPeerAsync(o, primary, at, primary, n, stream));
    CALL(cuStreamSynchronize(stream));
    // An address that begins in no allocation is the host's to these, and plain CUDA crashes.
    if (begin >= b.bytes) {
        return;
    }
    CALL(cuMemcpy(at, o, n));
    CALL(cuMemcpy(o, at, n));
    CALL(cuMemcpy(at, reinterpret_cast<CUdeviceptr>(h), n));
    CALL(cuMemcpy(reinterpret_cast<CUdeviceptr>(h), at, n));
    CALL(cuMemcpyAsync(at, o, n, stream));
    CALL(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(h), at, n, stream));
    CALL(cuStreamSynchronize(stream));
}

void bounds_of_copies() {
    start();
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{70000}, large, 24 * mib + 500}) {
        transcript.scene("copies");
        Buffers b(bytes);
        for (const auto& [begin, n] :
             std::initializer_list<std::pair<std::size_t, std::size_t>>{{0, bytes},
                                                                        {0, bytes + 1},
                                                                        {0, bytes + 4096},
                                                                        {bytes - 1, 1},
                                                                        {bytes - 1, 2},
                                                                        {bytes, 1},
                                                                        {bytes / 2, bytes},
                                                                        {0, 0},
                                                                        {bytes, 0}}) {
            transcript.value("from", static_cast<long long>(begin));
            transcript.value("so many", static_cast<long long>(n));
            linear_copies(b, begin, n);
        }
    }
}

void bounds_of_shapes() {
    start();
    // Rows of 1000 bytes in steps of 1024; the last one needs no rest of its step.
    constexpr std::size_t pitch = 1024;
    constexpr std::size_t width = 1000;
    constexpr std::size_t rows = 64;
    for (const std::size_t bytes : {(rows - 1) * pitch + width, (rows - 1) * pitch + width - 1,
                                    rows * pitch - 8, (rows - 1) * pitch + 4}) {
        transcript.scene("rows");
        Buffers b(bytes);
        void* h = b.host.data();
        CUDA_MEMCPY2D copy = plane(b.p, h, pitch, width, rows);
        CALL(cuMemcpy2D(&copy));
        CALL(cuMemcpy2DUnaligned(&copy));
        CALL(cuMemcpy2DAsync(&copy, stream));
        copy.dstXInBytes = 1;
        CALL(cuMemcpy2D(&copy));
        copy.dstXInBytes = 0;
        copy.dstY = 1;
        CALL(cuMemcpy2D(&copy));
        CALL(cuMemcpy2DAsync(&copy, stream));
        CUDA_MEMCPY2D back = plane_back(h, b.p, pitch, width, rows);
        CALL(cuMemcpy2D(&back));
        CALL(cuMemcpy2DAsync(&back, stream));
        CALL(cuMemsetD2D8(b.p, pitch, 1, width, rows));
        CALL(cuMemsetD2D8Async(b.p, pitch, 1, width, rows, stream));
        CALL(cuMemsetD2D16(b.p, pitch, 1, width / 2, rows));
        CALL(cuMemsetD2D32(b.p, pitch, 1, width / 4, rows));
        CALL(cuMemsetD2D32Async(b.p, pitch, 1, width / 4, rows, stream));
        CALL(cuStreamSynchronize(stream));
    }
    transcript.scene("volumes");
    constexpr std::size_t w = 100;
    constexpr std::size_t h = 10;
    constexpr std::size_t d = 5;
    for (const std::size_t bytes : {w * h * d, w * h * d - 1}) {
        Buffers b(bytes);
        CUDA_MEMCPY3D copy = volume(b.p, b.other, w, h, d);
        CALL(cuMemcpy3D(&copy));
        CALL(cuMemcpy3DAsync(&copy, stream));
        copy = volume(b.other, b.p, w, h, d);
        CALL(cuMemcpy3D(&copy));
        copy.srcZ = 1;
        CALL(cuMemcpy3D(&copy));
        copy.srcZ = 0;
        copy.srcY = 1;
        CALL(cuMemcpy3DAsync(&copy, stream));
        CUDA_MEMCPY3D_PEER peer = peer_volume(b.p, b.other, w * h * d);
        CALL(cuMemcpy3DPeer(&peer));
        CALL(cuMemcpy3DPeerAsync(&peer, stream));
        CALL(cuStreamSynchronize(stream));
    }
}

void bounds_of_fills() {
    start();
    for (const std::size_t bytes : {std::size_t{100}, large}) {
        transcript.scene("fills");
        Buffers b(bytes);
        for (const std::size_t more : {std::size_t{0}, std::size_t{4}, std::size_t{4096}}) {
            const std::size_t n = bytes + more;
            transcript.value("so many", static_cast<long long>(n));
            CALL(cuMemsetD8(b.p, 1, n));
            CALL(cuMemsetD16(b.p, 1, n / 2));
            CALL(cuMemsetD32(b.p, 1, n / 4));
            CALL(cuMemsetD8Async(b.p, 1, n, stream));
            CALL(cuMemsetD16Async(b.p, 1, n / 2, stream));
            CALL(cuMemsetD32Async(b.p, 1, n / 4, stream));
            CALL(cuMemsetD8Async(b.p, 1, n, nullptr));
            CALL(cuStreamSynchronize(stream));
        }
        CALL(cuMemsetD8(b.p, 1, bytes + 1));
        CALL(cuMemsetD8(b.p + bytes - 1, 1, 2));
        CALL(cuMemsetD8(b.p + bytes, 1, 1));
        CALL(cuMemsetD8(b.p + bytes, 1, 0));
    }
}

void bounds_of_arrays() {
    start();
    Buffers b(large);
    CUDA_ARRAY_DESCRIPTOR description{};
    description.Width = 16384;
    description.Height = 1024;
    description.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    description.NumChannels = 1;
    CUarray array = nullptr;
    CALL(cuArrayCreate(&array, &description));
    for (const std::size_t left : {std::size_t{16384}, std::size_t{16383}}) {
        const CUdeviceptr at = b.p + b.bytes - left;
        CALL(cuMemcpyDtoA(array, 0, at, 16384));
        CALL(cuMemcpyAtoD(at, array, 0, 16384));
        CUDA_MEMCPY2D copy{};
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.srcArray = array;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = at;
        copy.dstPitch = 16384;
        copy.WidthInBytes = 16384;
        copy.Height = 1;
        CALL(cuMemcpy2D(&copy));
    }
    CUstreamBatchMemOpParams operation{};
    operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = b.p + b.bytes - 4;
    operation.writeValue.value = 7;
    CALL(cuStreamBatchMemOp(stream, 1, &operation, 0));
    operation.writeValue.address = b.p + b.bytes;
    CALL(cuStreamBatchMemOp(stream, 1, &operation, 0));
    CALL(cuStreamSynchronize(stream));
    CALL(cuArrayDestroy(array));
}

void bounds_of_batches() {
    start();
    Buffers b(large);
    const auto batch = [&](CUdeviceptr to, CUdeviceptr from, std::size_t n) {
        CUdeviceptr targets[] = {b.other, to};
        CUdeviceptr sources[] = {b.before, from};
        std::size_t sizes[] = {512, n};
        CUmemcpyAttributes attributes{};
        attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        std::size_t first = 0;
        CALL(cuMemcpyBatchAsync(targets, sources, sizes, 2, &attributes, &first, 1, stream));
        CALL(cuStreamSynchronize(stream));
    };
    batch(b.p, b.other, b.bytes);
    batch(b.p, b.other, b.bytes + 1);
    batch(b.other, b.p, b.bytes + 1);
    const auto cube = [&](CUdeviceptr to, CUdeviceptr from, std::size_t n) {
        CUDA_MEMCPY3D_BATCH_OP op{};
        op.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        op.src.op.ptr.ptr = from;
        op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        op.dst.op.ptr.ptr = to;
        op.extent.width = n;
        op.extent.height = 1;
        op.extent.depth = 1;
        op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        CALL(cuMemcpy3DBatchAsync(1, &op, 0, stream));
        CALL(cuStreamSynchronize(stream));
    };
    cube(b.p, b.other, b.bytes);
    cube(b.p, b.other, b.bytes + 1);
    cube(b.other, b.p, b.bytes + 1);
}

void bounds_of_advice() {
    start();
    for (const std::size_t bytes : {std::size_t{70000}, large}) {
        transcript.scene("prefetch, advice, discard, values");
        Buffers b(bytes);
        CUmemLocation here{};
        here.type = CU_MEM_LOCATION_TYPE_DEVICE;
        here.id = 0;
        for (const std::size_t n : {bytes, bytes + 1, bytes + 4096, 2 * bytes}) {
            transcript.value("so many", static_cast<long long>(n));
            CALL(cuMemPrefetchAsync(b.p, n, here, 0, stream));
            CALL(cuMemAdvise(b.p, n, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
            CALL(cuMemAdvise(b.p, n, CU_MEM_ADVISE_UNSET_READ_MOSTLY, here));
            int mostly = 7;
            CALL(cuMemRangeGetAttribute(&mostly, sizeof mostly, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                        b.p, n));
            CUdeviceptr pointers[] = {b.p};
            std::size_t sizes[] = {n};
            std::size_t first[] = {0};
            CALL(cuMemPrefetchBatchAsync(pointers, sizes, 1, &here, first, 1, 0, stream));
            CALL(cuMemDiscardBatchAsync(pointers, sizes, 1, 0, stream));
            CALL(cuMemDiscardAndPrefetchBatchAsync(pointers, sizes, 1, &here, first, 1, 0, stream));
            CALL(cuStreamSynchronize(stream));
        }
        const CUdeviceptr last = (b.p + bytes - 4) & ~CUdeviceptr{3};
        CALL(cuStreamWriteValue32(stream, last, 1, 0));
        CALL(cuStreamWriteValue32(stream, last + 4, 1, 0));
        CALL(cuStreamWriteValue64(stream, last & ~CUdeviceptr{7}, 1, 0));
        CALL(cuStreamWaitValue32(stream, last + 4, 0, CU_STREAM_WAIT_VALUE_GEQ));
        CALL(cuStreamSynchronize(stream));
    }
    transcript.scene("managed memory");
    CUdeviceptr managed = 0;
    CALL(cuMemAllocManaged(&managed, 70000, CU_MEM_ATTACH_GLOBAL));
    CUmemLocation here{};
    here.type = CU_MEM_LOCATION_TYPE_DEVICE;
    here.id = 0;
    CALL(cuMemPrefetchAsync(managed, 70000, here, 0, stream));
    CALL(cuMemPrefetchAsync(managed, 70001, here, 0, stream));
    CALL(cuMemsetD8(managed, 1, 70001));
    CALL(cuStreamSynchronize(stream));
    CALL(cuMemFree(managed));
}

void bounds_of_nodes() {
    start();
    for (const std::size_t bytes : {std::size_t{100}, large}) {
        Buffers b(bytes);
        for (const std::size_t n : {bytes, bytes + 4}) {
            transcript.scene("graph nodes");
            transcript.value("so many", static_cast<long long>(n));
            CUgraph graph = nullptr;
            CUgraphNode node = nullptr;
            CUgraphNode fill = nullptr;
            CUgraphExec exec = nullptr;
            CALL(cuGraphCreate(&graph, 0));
            CUDA_MEMCPY3D copy = volume(b.p, b.other, n, 1, 1);
            const CUresult copied =
                CALL(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, primary));
            CUDA_MEMSET_NODE_PARAMS set{};
            set.dst = b.p;
            set.value = 1;
            set.elementSize = 4;
            set.width = n / 4;
            set.height = 1;
            const CUresult filled =
                CALL(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &set, primary));
            if (CALL(cuGraphInstantiate(&exec, graph, 0)) == CUDA_SUCCESS) {
                CALL(cuGraphLaunch(exec, stream));
                CALL(cuStreamSynchronize(stream));
                CUDA_MEMCPY3D longer = volume(b.p, b.other, bytes + 4, 1, 1);
                if (copied == CUDA_SUCCESS) {
                    CALL(cuGraphExecMemcpyNodeSetParams(exec, node, &longer, primary));
                    CALL(cuGraphMemcpyNodeSetParams(node, &longer));
                }
                set.width = (bytes + 4) / 4;
                if (filled == CUDA_SUCCESS) {
                    CALL(cuGraphExecMemsetNodeSetParams(exec, fill, &set, primary));
                    CALL(cuGraphMemsetNodeSetParams(fill, &set));
                }
                CALL(cuGraphExecDestroy(exec));
            }
            CUgraphNode general = nullptr;
            CUgraphNodeParams parameters{};
            parameters.type = CU_GRAPH_NODE_TYPE_MEMCPY;
            parameters.memcpy.copyCtx = primary;
            parameters.memcpy.copyParams = copy;
            CALL(cuGraphAddNode(&general, graph, nullptr, nullptr, 0, &parameters));
            CALL(cuGraphDestroy(graph));
            transcript.scene("captured");
            graph = nullptr;
            CUstreamCaptureStatus status{};
            CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
            CALL(cuMemcpyDtoDAsync(b.p, b.other, n, stream));
            CALL(cuStreamIsCapturing(stream, &status));
            transcript.value("status", status);
            CALL(cuMemsetD8Async(b.p, 1, n, stream));
            CALL(cuStreamIsCapturing(stream, &status));
            transcript.value("status", status);
            CALL(cuMemcpyHtoDAsync(b.p, b.host.data(), n, stream));
            CALL(cuStreamIsCapturing(stream, &status));
            transcript.value("status", status);
            if (CALL(cuStreamEndCapture(stream, &graph)) == CUDA_SUCCESS && graph != nullptr) {
                if (CALL(cuGraphInstantiate(&exec, graph, 0)) == CUDA_SUCCESS) {
                    CALL(cuGraphLaunch(exec, stream));
                    CALL(cuStreamSynchronize(stream));
                    CALL(cuGraphExecDestroy(exec));
                }
                CALL(cuGraphDestroy(graph));
            }
            CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
            CALL(cuMemcpyDtoDAsync(b.p, b.other, n, stream));
            CALL(cuStreamIsCapturing(stream, &status));
            transcript.value("status", status);
            CALL(cuStreamEndCapture(stream, &graph));
            if (graph != nullptr) {
                CALL(cuGraphDestroy(graph));
            }
        }
    }
}

void freed_memory() {
    start();
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{70000}, large}) {
        transcript.scene("freed");
        Buffers b(bytes);
        CUdeviceptr p = 0;
        unsigned char byte = 0;
        CALL(cuMemAlloc(&p, bytes));
        CALL(cuMemFree(p));
        CALL(cuMemsetD8(p, 1, bytes));
        CALL(cuMemcpyDtoH(&byte, p, 1));
        CALL(cuMemcpyDtoDAsync(b.other, p, bytes, stream));
        CALL(cuStreamSynchronize(stream));
        CALL(cuMemsetD8(p + bytes - 1, 1, 1));
        transcript.scene("freed in a stream");
        CALL(cuMemAlloc(&p, bytes));
        CALL(cuMemFreeAsync(p, stream));
        CALL(cuStreamSynchronize(stream));
        CALL(cuMemcpyDtoH(&byte, p, 1));
        CALL(cuMemFree(p));
        CALL(cuMemFreeAsync(p, stream));
    }
    transcript.scene("no context, wrong stream");
    Buffers b(100);
    CALL(cuMemsetD8Async(b.p, 1, 101, reinterpret_cast<CUstream>(CU_STREAM_LEGACY)));
    CALL(cuMemsetD8Async(b.p, 1, 101, CU_STREAM_PER_THREAD));
    CALL(cuCtxSetCurrent(nullptr));
    CALL(cuMemsetD8(b.p, 1, 100));
    CALL(cuMemsetD8(b.p, 1, 101));
    CALL(cuMemsetD8Async(b.p, 1, 101, stream));
    CALL(cuMemcpyHtoD(b.p, b.host.data(), 101));
    CALL(cuMemcpyHtoDAsync(b.p, b.host.data(), 101, stream));
    CALL(cuCtxSetCurrent(primary));
}

// A kernel that ends with a trap.
constexpr char faulting_image[] =
    ".version 8.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry memlab_fault() { trap; }\n";

void after_fault() {
    start();
    CUcontext other = nullptr;
    CALL(cuCtxCreate(&other, nullptr, 0, 0));
    CUdeviceptr in_other = 0;
    CALL(cuMemAlloc(&in_other, 3 * mib));
    CALL(cuCtxSetCurrent(primary));
    CUdeviceptr kept = 0;
    CUdeviceptr second = 0;
    CUdeviceptr third = 0;
    CUdeviceptr cached = 0;
    CALL(cuMemAlloc(&kept, 3 * mib));
    CALL(cuMemAlloc(&second, 3 * mib));
    CALL(cuMemAlloc(&third, 3 * mib));
    CALL(cuMemAlloc(&cached, 3 * mib));
    CALL(cuMemFree(cached));
    void* pinned = nullptr;
    CALL(cuMemHostAlloc(&pinned, 4096, 0));
    CUevent event = nullptr;
    CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUmodule module = nullptr;
    CUfunction fault = nullptr;
    CALL(cuModuleLoadData(&module, faulting_image));
    CALL(cuModuleGetFunction(&fault, module, "memlab_fault"));
    CALL(cuCtxSynchronize());
    CALL(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    CALL(cuStreamSynchronize(stream));
    transcript.scene("after it");
    CUdeviceptr p = 0;
    CUdeviceptr q = 0;
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    unsigned type = 0;
    CALL(cuMemAlloc(&p, 3 * mib));
    transcript.value("the pointer", static_cast<long long>(p));
    CALL(cuMemAlloc(&p, 0));
    CALL(cuMemAlloc(&p, std::size_t{1} << 60));
    CALL(cuMemFree(0));
    CALL(cuMemFree(second));
    CALL(cuMemFree(second));
    CALL(cuMemFree(0x1234));
    CALL(cuMemFreeAsync(third, stream));
    CALL(cuMemAllocAsync(&p, 100, stream));
    std::size_t pitch = 0;
    CALL(cuMemAllocPitch(&p, &pitch, 100, 10, 4));
    CALL(cuMemAllocManaged(&p, 100, CU_MEM_ATTACH_GLOBAL));
    CALL(cuMemGetInfo(&free_bytes, &total));
    CALL(cuMemGetAddressRange(&q, nullptr, kept));
    CALL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, kept));
    CALL(cuMemsetD8(kept, 1, 100));
    CALL(cuMemsetD8(kept, 1, 3 * mib + 1));
    CALL(cuEventQuery(event));
    CALL(cuStreamQuery(stream));
    CALL(cuCtxSynchronize());
    CALL(cuEventRecord(event, stream));
    CALL(cuMemHostAlloc(&pinned, 4096, 0));
    CUipcMemHandle handle;
    CALL(cuIpcGetMemHandle(&handle, kept));
    CUcontext current = nullptr;
    CALL(cuCtxGetCurrent(&current));
    transcript.scene("another context of the device");
    CALL(cuCtxSetCurrent(other));
    CALL(cuMemAlloc(&p, 3 * mib));
    CALL(cuMemsetD8(in_other, 1, 100));
    CALL(cuCtxSynchronize());
    CALL(cuMemFree(in_other));
    CALL(cuMemFree(kept));
    transcript.scene("after a reset");
    CALL(cuCtxSetCurrent(primary));
    CALL(cuDevicePrimaryCtxReset(0));
    CALL(cuDevicePrimaryCtxRetain(&primary, 0));
    CALL(cuCtxSetCurrent(primary));
    CALL(cuMemAlloc(&p, 3 * mib));
    CALL(cuMemFree(p));
}

void detached_contexts() {
    CALL(cuInit(0));
    for (int round = 0; round < 4; ++round) {
        transcript.scene("made and detached");
        CUcontext context = nullptr;
        CUcontext current = nullptr;
        CALL(cuCtxCreate(&context, nullptr, 0, 0));
        CUdeviceptr p = 0;
        CUdeviceptr q = 0;
        CALL(cuMemAlloc(&p, 3 * mib));
        CALL(cuMemAlloc(&q, 3 * mib));
        CALL(cuMemsetD8(p, 1, 3 * mib));
        CALL(cuMemsetD8(q, 1, 3 * mib));
        CALL(cuMemFree(p));
        if (round == 2) {
            CUcontext attached = nullptr;
            CALL(cuCtxAttach(&attached, 0));
            transcript.value("the same", attached == context);
            CALL(cuCtxDetach(context));
            CALL(cuCtxGetCurrent(&current));
            transcript.value("current", current == context);
            CALL(cuMemsetD8(q, 1, 3 * mib));
        }
        CALL(cuCtxDetach(context));
        CALL(cuCtxGetCurrent(&current));
        transcript.value("current", current == context);
        transcript.value("none", current == nullptr);
        CALL(cuMemsetD8(q, 1, 1));
        CALL(cuMemFree(q));
    }
}

void green_contexts() {
    CALL(cuInit(0));
    for (int round = 0; round < 3; ++round) {
        transcript.scene("a green context alone");
        CUdevResource all;
        CUdevResource part;
        CUdevResource rest;
        CUdevResourceDesc description;
        unsigned groups = 1;
        CALL(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
        CALL(cuDevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, 16));
        CALL(cuDevResourceGenerateDesc(&description, &part, 1));
        CUgreenCtx green = nullptr;
        CUcontext context = nullptr;
        CALL(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        CALL(cuCtxFromGreenCtx(&context, green));
        CALL(cuCtxSetCurrent(context));
        CUdeviceptr p = 0;
        CUdeviceptr q = 0;
        CALL(cuMemAlloc(&p, 3 * mib));
        CALL(cuMemAlloc(&q, 3 * mib));
        CALL(cuMemsetD8(p, 1, 3 * mib));
        CALL(cuMemsetD8(q, 1, 3 * mib));
        CALL(cuCtxSynchronize());
        CUstream green_stream = nullptr;
        CALL(cuGreenCtxStreamCreate(&green_stream, green, CU_STREAM_NON_BLOCKING, 0));
        CUcontext of_stream = nullptr;
        CALL(cuStreamGetCtx(green_stream, &of_stream));
        transcript.value("the stream's is the green one", of_stream == context);
        CUevent event = nullptr;
        CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CALL(cuEventRecord(event, green_stream));
        CALL(cuMemFreeAsync(q, green_stream));
        CALL(cuStreamSynchronize(green_stream));
        CALL(cuMemFree(p));
        CUdeviceptr left = 0;
        CALL(cuMemAlloc(&left, 3 * mib));
        CALL(cuCtxSetCurrent(nullptr));
        CALL(cuStreamDestroy(green_stream));
        CALL(cuGreenCtxDestroy(green));
        unsigned flags = 0;
        int active = 7;
        CALL(cuDevicePrimaryCtxGetState(0, &flags, &active));
        transcript.value("the primary context is active", active);
        CALL(cuMemFree(left));
    }
}

void capturing_contexts() {
    start();
    for (const bool reset : {false, true}) {
        transcript.scene(reset ? "a reset during a capture" : "destroyed during a capture");
        CUcontext context = primary;
        CUdeviceptr kept = 0;
        CALL(cuMemAlloc(&kept, 3 * mib));
        if (!reset) {
            CALL(cuCtxCreate(&context, nullptr, 0, 0));
        }
        CUstream captured = nullptr;
        CALL(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
        CALL(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
        if (reset) {
            CALL(cuDevicePrimaryCtxReset(0));
            CALL(cuDevicePrimaryCtxRetain(&primary, 0));
        } else {
            CALL(cuCtxDestroy(context));
        }
        CALL(cuCtxSetCurrent(primary));
        CUdeviceptr p = 0;
        CALL(cuMemAlloc(&p, 3 * mib));
        CALL(cuMemsetD8(p, 1, 3 * mib));
        CALL(cuMemFree(p));
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        CALL(cuThreadExchangeStreamCaptureMode(&mode));
        transcript.value("mode", mode);
    }
}

void exported_pages() {
    start();
    int supported = 0;
    CALL(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
    transcript.value("supported", supported);
    const auto exports = [&](const char* what, CUdeviceptr from, std::size_t bytes) {
        int descriptor = -1;
        const CUresult result = cuMemGetHandleForAddressRange(
            &descriptor, from, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
        transcript.call(what, result);
        if (result == CUDA_SUCCESS) {
            close(descriptor);
        }
    };
    constexpr CUdeviceptr page = 4096;
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{70000}, mib + 100, 3 * mib + 100,
                                    12 * mib + 5000, 40 * mib + 12345, 4 * mib}) {
        transcript.scene("pages");
        transcript.value("bytes", static_cast<long long>(bytes));
        CUdeviceptr p[3] = {};
        for (CUdeviceptr& each : p) {
            CALL(cuMemAlloc(&each, bytes));
        }
        for (const CUdeviceptr each : p) {
            const CUdeviceptr from = each & ~(page - 1);
            const CUdeviceptr end = (each + bytes + page - 1) & ~(page - 1);
            exports("whole pages", from, end - from);
            exports("exact", each, bytes);
            exports("a page inside", from, page);
            // What lies beyond a unit of 2 MiB, and beyond the end of a smaller one, depends on
            // what else was allocated.
            if (bytes > 2 * mib) {
                exports("to the next 2 MiB", from, ((end + 2 * mib - 1) & ~(2 * mib - 1)) - from);
                exports("from the second page", from + page, page);
            }
        }
        for (const CUdeviceptr each : p) {
            CALL(cuMemFree(each));
        }
    }
}

void mappings() {
    start();
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{70000}, mib, mib + 100,
                                    2 * mib - 1, 2 * mib, 3 * mib + 100, 20 * mib}) {
        CUdeviceptr p[2] = {};
        for (CUdeviceptr& each : p) {
            transcript.value("bytes", static_cast<long long>(bytes));
            CALL(cuMemAlloc(&each, bytes));
            transcript.name(&each == p ? "first" : "second", each, bytes);
            CUdeviceptr base = 0;
            std::size_t size = 0;
            CALL(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, each));
            CALL(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, each));
            transcript.place("mapping", base);
            transcript.value("of", static_cast<long long>(size));
            base = 0;
            CALL(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, each + 99));
            transcript.place("mapping", base);
            // Which of the smaller ones share a unit depends on what else was allocated.
            std::uint64_t block = 0;
            CALL(cuPointerGetAttribute(&block, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, each));
            if (bytes > mib) {
                transcript.id("block", block);
            }
        }
        CALL(cuMemFree(p[0]));
        CALL(cuMemFree(p[1]));
    }
}

CUdeviceptr in_function = 0;
CUdeviceptr got = 0;
CUresult answers[6];

void CUDA_CB host_function(void* /*unused*/) {
    answers[0] = cuMemAlloc(&got, 3 * mib);
    answers[1] = cuMemFree(in_function);
    answers[2] = cuMemFreeAsync(in_function, stream);
    std::size_t bytes = 0;
    answers[3] = cuMemGetInfo(&bytes, &bytes);
    answers[4] = cuMemsetD8(in_function, 1, 100);
    unsigned type = 0;
    answers[5] = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, in_function);
}

void host_functions() {
    start();
    CUdeviceptr warm = 0;
    CALL(cuMemAlloc(&in_function, 3 * mib));
    CALL(cuMemAlloc(&warm, 3 * mib));
    CALL(cuMemFree(warm));
    CALL(cuMemsetD8Async(in_function, 1, 3 * mib, stream));
    CALL(cuLaunchHostFunc(stream, host_function, nullptr));
    CALL(cuStreamSynchronize(stream));
    for (const CUresult each : answers) {
        transcript.value("answered", each);
    }
    CALL(cuMemFree(in_function));
    CALL(cuMemFree(got));
}

// Tokens for kernel modules that reach the memory from another device. As documented, asking for
// them also makes the allocation's memory operations synchronous.
void tokens() {
    start();
    const auto ask = [](const char* what, CUdeviceptr p) {
        CUDA_POINTER_ATTRIBUTE_P2P_TOKENS pair{};
        unsigned set = 7;
        transcript.scene(what);
        CALL(cuPointerGetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
        transcript.value("it is", set);
        CALL(cuPointerGetAttribute(&pair, CU_POINTER_ATTRIBUTE_P2P_TOKENS, p));
        transcript.value("has one", pair.p2pToken != 0);
        transcript.value("has one of the address space", pair.vaSpaceToken != 0);
        CALL(cuPointerGetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
        transcript.value("it is", set);
    };
    CUdeviceptr p[3] = {};
    for (CUdeviceptr& each : p) {
        CALL(cuMemAlloc(&each, large));
    }
    CUdeviceptr managed = 0;
    void* pinned = nullptr;
    CALL(cuMemAllocManaged(&managed, large, CU_MEM_ATTACH_GLOBAL));
    CALL(cuMemHostAlloc(&pinned, large, 0));
    ask("an allocation", p[1]);
    ask("inside of one", p[0] + 2 * mib);
    ask("another one", p[2]);
    ask("managed memory", managed);
    ask("pinned memory", reinterpret_cast<CUdeviceptr>(pinned));
    CALL(cuMemFree(p[1]));
    ask("freed memory", p[1]);
    ask("no memory", 0x1234);
    CALL(cuMemFree(p[0]));
    CALL(cuMemFree(p[2]));
    CALL(cuMemFree(managed));
    CALL(cuMemFreeHost(pinned));
}

constexpr Group groups[] = {
    {"copies", bounds_of_copies},
    {"arrays", bounds_of_arrays},
    {"shapes", bounds_of_shapes},
    {"fills", bounds_of_fills},
    {"batches", bounds_of_batches},
    {"advice", bounds_of_advice},
    {"nodes", bounds_of_nodes},
    {"freed", freed_memory},
    {"fault", after_fault},
    {"detach", detached_contexts},
    {"green", green_contexts},
    {"capturing", capturing_contexts},
    {"pages", exported_pages},
    {"mappings", mappings},
    {"tokens", tokens},
    {"host_function", host_functions},
};

}  // namespace

int main(int argc, char** argv) {
    return run_group(groups, argc, argv);
}
