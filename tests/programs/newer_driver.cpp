// Functions of CUDA 13.1 to 13.4, and of a CUDA that is yet to come, as the simulated drivers
// of 13.5 and 99.0 have them. Prints the answers of plain CUDA.
//
//   newer_driver copies|host|recapture|nodes|graphics|endpoint   what memlab knows
//   newer_driver ask SYMBOL...      asks dlsym for the names and uses what is there
//   newer_driver address NAME...    asks cuGetProcAddress for the newest version of the names
//   newer_driver lookups            asks cuGetProcAddress for all names of 13.1 to 13.4, calls none
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

#include "tests/programs/simulated.hpp"

namespace {

constexpr std::size_t bytes = 300'000;

/// The function of this name as cuGetProcAddress gives it for a version; ends the program if there
/// is none.
template <class Function>
Function* get(const char* name, int version) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult found{};
    CHECK(cuGetProcAddress(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &found));
    if (function == nullptr) {
        SAY("no %s\n", name);
        _exit(3);
    }
    return reinterpret_cast<Function*>(function);
}

CUstream new_stream() {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/// How many of the first bytes have this value.
int count(CUdeviceptr address, unsigned char value) {
    static unsigned char contents[bytes];
    CHECK(cuMemcpyDtoH(contents, address, bytes));
    int equal = 0;
    for (const unsigned char each : contents) {
        equal += each == value ? 1 : 0;
    }
    return equal;
}

void copies() {
    auto* const copy = get<CUresult(CUdeviceptr, CUdeviceptr, std::size_t, void*, CUstream)>(
        "cuMemcpyWithAttributesAsync", 13020);
    const CUstream stream = new_stream();
    const CUdeviceptr from = program::allocate(bytes);
    const CUdeviceptr to = program::allocate(bytes);
    CHECK(cuMemsetD8(from, 7, bytes));
    SAY("copied: %d\n", copy(to, from, bytes, nullptr, stream));
    CHECK(cuStreamSynchronize(stream));
    SAY("bytes: %d\n", count(to, 7));
    SAY("past the end: %d\n", copy(to, from, bytes + 1, nullptr, stream));
    for (int i = 0; i < 5; ++i) {
        const CUdeviceptr again = program::allocate(bytes);
        CHECK(static_cast<CUresult>(copy(again, from, bytes, nullptr, stream)));
        program::release(again);
    }
    CHECK(cuStreamSynchronize(stream));
}

void host() {
    auto* const launch =
        get<CUresult(CUstream, CUhostFn, void*, unsigned)>("cuLaunchHostFunc", 13020);
    static int calls = 0;
    const CUstream stream = new_stream();
    const CUhostFn call = [](void* counter) { ++*static_cast<int*>(counter); };
    for (const unsigned mode : {0U, 1U, 2U}) {
        SAY("mode %u: %d\n", mode, launch(stream, call, &calls, mode));
    }
    CHECK(cuStreamSynchronize(stream));
    SAY("calls: %d\n", calls);
}

void recapture() {
    auto* const again = get<CUresult(CUstream, CUstreamCaptureMode, CUgraph, void (*)(), void*)>(
        "cuStreamBeginRecaptureToGraph", 13030);
    const CUstream stream = new_stream();
    const CUdeviceptr block = program::allocate(bytes);
    CUgraph graph = nullptr;
    CUdeviceptr inside = 0;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemAllocAsync(&inside, bytes, stream));
    CHECK(cuMemsetD8Async(inside, 1, bytes, stream));
    CHECK(cuMemsetD8Async(block, 1, bytes, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    for (unsigned char round = 2; round < 4; ++round) {
        CUdeviceptr address = 0;
        SAY("begin: %d\n", again(stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, nullptr, nullptr));
        CHECK(cuMemAllocAsync(&address, bytes, stream));
        SAY("same memory: %d\n", address == inside ? 1 : 0);
        CHECK(cuMemsetD8Async(inside, round, bytes, stream));
        // Memory of the pool comes and goes meanwhile: no fence may end up in the capture.
        for (int i = 0; i < 3; ++i) {
            program::release(program::allocate(20'000'000));
        }
        CHECK(cuMemsetD8Async(block, round, bytes, stream));
        CUgraph same = nullptr;
        SAY("end: %d, same graph: ", cuStreamEndCapture(stream, &same));
        SAY("%d\n", same == graph ? 1 : 0);
        CUgraphExec executable = nullptr;
        CHECK(cuGraphInstantiate(&executable, graph, 0));
        CHECK(cuGraphLaunch(executable, stream));
        CHECK(cuStreamSynchronize(stream));
        SAY("bytes: %d\n", count(block, round));
        CHECK(cuMemFreeAsync(inside, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuGraphExecDestroy(executable));
    }
    SAY("begin: %d\n", again(stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, nullptr, nullptr));
    SAY("another order: %d\n", cuMemsetD8Async(block, 1, bytes, stream));
    CUgraph none = nullptr;
    SAY("end: %d\n", cuStreamEndCapture(stream, &none));
    CHECK(cuGraphDestroy(graph));
    program::release(block);
}

void nodes() {
    auto* const add =
        get<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, std::size_t,
                     CUgraphNodeParams*)>("cuGraphAddNode", 13040);
    auto* const set = get<CUresult(CUgraphNode, CUgraphNodeParams*)>("cuGraphNodeSetParams", 13040);
    const CUstream stream = new_stream();
    const CUdeviceptr block = program::allocate(bytes);
    CUcontext context = nullptr;
    CHECK(cuCtxGetCurrent(&context));
    CUgraph graph = nullptr;
    CHECK(cuGraphCreate(&graph, 0));
    CUgraphNodeParams fill{};
    fill.type = CU_GRAPH_NODE_TYPE_MEMSET;
    fill.memset = {block, 0, 5, 1, bytes, 1, context};
    CUgraphNode node = nullptr;
    SAY("add: %d\n", add(&node, graph, nullptr, nullptr, 0, &fill));
    fill.memset.value = 6;
    SAY("set: %d\n", set(node, &fill));
    fill.memset.width = bytes + 1;
    SAY("past the end: %d\n", set(node, &fill));
    CUgraphNodeParams allocation{};
    allocation.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    allocation.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    allocation.alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    allocation.alloc.bytesize = bytes;
    CUgraphNode allocated = nullptr;
    SAY("allocate: %d\n", add(&allocated, graph, nullptr, nullptr, 0, &allocation));
    CUgraphExec executable = nullptr;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    SAY("bytes: %d\n", count(block, 6));
    CHECK(cuMemFree(allocation.alloc.dptr));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    program::release(block);
}

/// Blocks that a pool would keep, freed and had again.
void blocks() {
    for (int i = 0; i < 3; ++i) {
        const CUdeviceptr block = program::allocate(bytes);
        CHECK(cuMemsetD8(block, 9, bytes));
        SAY("bytes: %d\n", count(block, 9));
        program::release(block);
    }
}

void graphics() {
    auto* const begin = get<CUresult(CUstream, void*)>("cuStreamBeginCaptureToCig", 13020);
    auto* const end = get<CUresult(CUstream)>("cuStreamEndCaptureToCig", 13020);
    const CUstream stream = new_stream();
    const CUdeviceptr block = program::allocate(bytes);
    blocks();
    SAY("begin: %d\n", begin(stream, nullptr));
    CHECK(cuMemsetD8Async(block, 1, bytes, stream));
    program::release(program::allocate(20'000'000));
    SAY("end: %d\n", end(stream));
    blocks();
}

void endpoint() {
    auto* const create = get<CUresult(unsigned, const void*)>("cuLogicalEndpointCreate", 13030);
    auto* const bind =
        get<CUresult(unsigned, CUdevice, std::uint64_t, void*, std::uint64_t, unsigned long long)>(
            "cuLogicalEndpointBindAddr", 13030);
    blocks();
    SAY("create: %d\n", create(1, nullptr));
    const CUdeviceptr block = program::allocate(bytes);
    SAY("bind: %d\n", bind(1, 0, 0, reinterpret_cast<void*>(block), bytes, 0));
    blocks();
}

CUdeviceptr early = 0;  // allocated before a name is asked for

/// Calls what the driver of a CUDA that is yet to come has under this name.
void use(const std::string& name, void* function) {
    const CUstream stream = new_stream();
    if (function == nullptr) {
        SAY("%s: none\n", name.c_str());
    } else if (name.starts_with("cuMemAlloc")) {
        CUdeviceptr block = 0;
        SAY("allocate: %d\n",
            reinterpret_cast<CUresult (*)(CUdeviceptr*, std::size_t)>(function)(&block, bytes));
        CHECK(cuMemsetD8(block, 4, bytes));
        SAY("bytes: %d\n", count(block, 4));
        CHECK(cuMemFree(block));
        SAY("again: %d\n", cuMemFree(block));
    } else if (name.starts_with("cuMemFree")) {
        auto* const release = reinterpret_cast<CUresult (*)(CUdeviceptr)>(function);
        const CUdeviceptr block = program::allocate(bytes);
        SAY("free: %d", release(block));
        SAY(", again: %d\n", release(block));
    } else if (name.starts_with("cuMemBindExtent")) {
        const CUdeviceptr block = program::allocate(bytes);
        SAY("bind: %d\n",
            reinterpret_cast<CUresult (*)(CUdeviceptr, std::size_t)>(function)(block, bytes));
        program::release(block);
    } else if (name.starts_with("cuMemsetTile")) {
        auto* const fill =
            reinterpret_cast<CUresult (*)(CUdeviceptr, unsigned char, std::size_t, CUstream)>(
                function);
        for (unsigned char value = 1; value < 6; ++value) {
            const CUdeviceptr block = program::allocate(bytes);
            SAY("fill: %d\n", fill(block, value, bytes, stream));
            CHECK(cuStreamSynchronize(stream));
            SAY("bytes: %d\n", count(block, value));
            fill(block, 0, bytes, stream);
            program::release(block);
        }
    } else if (name.starts_with("cuStreamBeginCapture")) {
        const CUdeviceptr block = program::allocate(bytes);
        SAY("begin: %d\n", reinterpret_cast<CUresult (*)(CUstream, CUstreamCaptureMode, unsigned)>(
                               function)(stream, CU_STREAM_CAPTURE_MODE_RELAXED, 0));
        CHECK(cuMemsetD8Async(block, 1, bytes, stream));
        program::release(program::allocate(20'000'000));
        program::release(early);
        early = 0;
        CUgraph graph = nullptr;
        SAY("end: %d\n", cuStreamEndCapture(stream, &graph));
    } else if (name.starts_with("cuDeviceGetMood")) {
        int mood = 0;
        SAY("ask: %d", reinterpret_cast<CUresult (*)(int*, CUdevice)>(function)(&mood, 0));
        SAY(", %d\n", mood);
    }
}

void lookups() {
    int found = 0;
    for (const char* name :
         {"cuMulticastBindMem", "cuLaunchHostFunc", "cuMemcpyWithAttributesAsync",
          "cuMemcpy3DWithAttributesAsync", "cuStreamBeginCaptureToCig", "cuStreamEndCaptureToCig",
          "cuStreamBeginRecaptureToGraph", "cuLogicalEndpointCreate", "cuLogicalEndpointBindAddr",
          "cuGraphAddNode", "cuGraphNodeSetParams"}) {
        for (const auto flags :
             {CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}) {
            void* function = nullptr;
            CUdriverProcAddressQueryResult status{};
            CHECK(cuGetProcAddress(name, &function, 13040, flags, &status));
            found += function != nullptr ? 1 : 0;
        }
    }
    SAY("found: %d\n", found);
    blocks();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        return 2;
    }
    const std::string mode = argv[1];
    program::use_device();
    const struct {
        const char* name;
        void (*run)();
    } modes[] = {{"copies", copies},  {"host", host},         {"recapture", recapture},
                 {"nodes", nodes},    {"graphics", graphics}, {"endpoint", endpoint},
                 {"lookups", lookups}};
    for (const auto& each : modes) {
        if (mode == each.name) {
            each.run();
            return 0;
        }
    }
    blocks();
    early = program::allocate(bytes);
    for (int i = 2; i < argc; ++i) {
        void* function = nullptr;
        if (mode == "ask") {
            function = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), argv[i]);
        } else {
            CUdriverProcAddressQueryResult found{};
            CHECK(cuGetProcAddress(argv[i], &function, 99000, CU_GET_PROC_ADDRESS_DEFAULT, &found));
        }
        use(argv[i], function);
    }
    blocks();
    return 0;
}
