// Copies whose memory is on another device than the current context's, in every form and without
// peer access: the driver makes them for memory from cuMemAlloc. Prints each answer and whether the
// bytes arrived; the same whatever serves the memory. Then with peer access, and after it ended.
//
// Recorded: device: 2 devices with 2 blocks.
#include <cstring>
#include <iterator>
#include <vector>

#include "tests/programs/program.hpp"

using namespace program;

namespace {

constexpr std::size_t bytes = std::size_t{3} << 19;
constexpr std::size_t row = 1024;

struct Device {
    CUcontext context;
    CUstream stream;
    CUdeviceptr blocks[2];
};
Device devices[2];
std::vector<unsigned char> host(bytes);
unsigned char pattern = 0;

struct Ends {
    CUdeviceptr to;  // 0: the host's memory
    CUdeviceptr from;
    const char* name;
};

const Device& home(CUdeviceptr block) {
    return block == devices[1].blocks[0] || block == devices[1].blocks[1] ? devices[1] : devices[0];
}

void set(CUdeviceptr block, unsigned char value) {
    if (block == 0) {
        std::memset(host.data(), value, bytes);
        return;
    }
    CHECK(cuCtxSetCurrent(home(block).context));
    CHECK(cuMemsetD8(block, value, bytes));
    CHECK(cuCtxSynchronize());
}

bool holds(CUdeviceptr block, unsigned char value) {
    if (block == 0) {
        return std::all_of(host.begin(), host.end(),
                           [value](unsigned char byte) { return byte == value; });
    }
    CHECK(cuCtxSetCurrent(home(block).context));
    return all_bytes_are(block, bytes, value);
}

CUdeviceptr address(CUdeviceptr block) {
    return block != 0 ? block : reinterpret_cast<CUdeviceptr>(host.data());
}

// The sides of 2D and 3D copies have the same members.
template <class Copy>
Copy shaped(const Ends& ends, CUmemorytype type) {
    Copy copy{};
    copy.srcMemoryType = copy.dstMemoryType = type;
    copy.srcDevice = address(ends.from);
    copy.dstDevice = address(ends.to);
    copy.srcPitch = copy.dstPitch = row;
    copy.WidthInBytes = row;
    copy.Height = bytes / row;
    return copy;
}

CUDA_MEMCPY3D volume(const Ends& ends) {
    auto copy = shaped<CUDA_MEMCPY3D>(ends, CU_MEMORYTYPE_UNIFIED);
    copy.srcHeight = copy.dstHeight = copy.Height;
    copy.Depth = 1;
    return copy;
}

CUresult launch(CUgraph graph, CUstream stream) {
    CUgraphExec executable = nullptr;
    const CUresult made = cuGraphInstantiate(&executable, graph, 0);
    if (made == CUDA_SUCCESS) {
        CHECK(cuGraphLaunch(executable, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuGraphExecDestroy(executable));
    }
    CHECK(cuGraphDestroy(graph));
    return made;
}

CUresult captured(const Ends& ends, CUstream stream) {
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    const CUresult copied = cuMemcpyAsync(address(ends.to), address(ends.from), bytes, stream);
    const CUresult ended = cuStreamEndCapture(stream, &graph);
    return copied != CUDA_SUCCESS ? copied : ended != CUDA_SUCCESS ? ended : launch(graph, stream);
}

CUresult node(const Ends& ends, CUcontext context, CUstream stream) {
    CUgraph graph = nullptr;
    CUgraphNode made = nullptr;
    const CUDA_MEMCPY3D copy = volume(ends);
    CHECK(cuGraphCreate(&graph, 0));
    const CUresult added = cuGraphAddMemcpyNode(&made, graph, nullptr, 0, &copy, context);
    return added != CUDA_SUCCESS ? added : launch(graph, stream);
}

enum class Form {
    plain,
    in_own_stream,
    in_other_stream,
    in_null_stream,
    rectangle,
    volume,
    batch,
    captured,
    node,
};
constexpr const char* names[] = {"cuMemcpy", "own stream", "other stream", "null stream", "2D",
                                 "3D",       "batch",      "captured",     "node"};

CUresult copy(Form form, const Ends& ends, const Device& current, const Device& other) {
    CUdeviceptr to = address(ends.to);
    CUdeviceptr from = address(ends.from);
    switch (form) {
        case Form::plain:
            return cuMemcpy(to, from, bytes);
        case Form::in_own_stream:
            return cuMemcpyAsync(to, from, bytes, current.stream);
        case Form::in_other_stream:
            return cuMemcpyAsync(to, from, bytes, other.stream);
        case Form::in_null_stream:
            return cuMemcpyAsync(to, from, bytes, nullptr);
        case Form::rectangle: {
            const auto rectangle = shaped<CUDA_MEMCPY2D>(ends, CU_MEMORYTYPE_UNIFIED);
            return cuMemcpy2DAsync(&rectangle, current.stream);
        }
        case Form::volume: {
            const CUDA_MEMCPY3D box = volume(ends);
            return cuMemcpy3D(&box);
        }
        case Form::batch: {
            std::size_t size = bytes;
            std::size_t first = 0;
            CUmemcpyAttributes attributes{};
            attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
            return cuMemcpyBatchAsync(&to, &from, &size, 1, &attributes, &first, 1, current.stream);
        }
        case Form::captured:
            return captured(ends, current.stream);
        case Form::node:
            return node(ends, current.context, current.stream);
    }
    return CUDA_ERROR_UNKNOWN;
}

void all_forms(const Ends& ends, int number) {
    const Device& current = devices[number];
    const Device& other = devices[1 - number];
    SAY("%s, device %d current:", ends.name, number);
    for (int form = 0; form < static_cast<int>(std::size(names)); ++form) {
        ++pattern;
        set(ends.from, pattern);
        set(ends.to, static_cast<unsigned char>(~pattern));
        CHECK(cuCtxSetCurrent(current.context));
        const CUresult answer = copy(static_cast<Form>(form), ends, current, other);
        CHECK(cuStreamSynchronize(other.stream));
        CHECK(cuCtxSetCurrent(current.context));
        CHECK(cuCtxSynchronize());
        SAY(" %s %d %s%s", names[form], static_cast<int>(answer),
            holds(ends.to, pattern) ? "right" : "wrong",
            form + 1 == static_cast<int>(std::size(names)) ? "\n" : ",");
    }
}

void all_copies() {
    const CUdeviceptr zero = devices[0].blocks[0];
    const CUdeviceptr one = devices[1].blocks[0];
    for (const Ends& ends : {Ends{one, zero, "0 to 1"}, Ends{zero, one, "1 to 0"},
                             Ends{devices[0].blocks[1], zero, "0 to 0"}, Ends{zero, 0, "host to 0"},
                             Ends{0, zero, "0 to host"}}) {
        for (const int current : {1, 0}) {
            all_forms(ends, current);
        }
    }
}

}  // namespace

int main() {
    int count = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&count));
    if (count < 2) {
        SAY("this program needs two GPUs\n");
        return 2;
    }
    for (int i = 0; i < 2; ++i) {
        devices[i].context = use_device(i);
        CHECK(cuStreamCreate(&devices[i].stream, CU_STREAM_NON_BLOCKING));
        for (CUdeviceptr& block : devices[i].blocks) {
            block = allocate(bytes);
        }
    }
    all_copies();
    for (const int i : {0, 1}) {
        CHECK(cuCtxSetCurrent(devices[i].context));
        SAY("peer access: %d\n",
            static_cast<int>(cuCtxEnablePeerAccess(devices[1 - i].context, 0)));
    }
    all_copies();
    for (const int i : {0, 1}) {
        CHECK(cuCtxSetCurrent(devices[i].context));
        SAY("ended: %d\n", static_cast<int>(cuCtxDisablePeerAccess(devices[1 - i].context)));
    }
    all_copies();
    for (const Device& device : devices) {
        CHECK(cuCtxSetCurrent(device.context));
        for (const CUdeviceptr block : device.blocks) {
            release(block);
        }
    }
    return 0;
}
