// Memory that the program has freed is there for whoever needs it next. 80 % of the GPU is
// allocated in eight pieces and freed; then:
//
//   gives_way beside WHAT      beside a kernel that does not end, 60 % are taken in one piece by
//                              malloc, async (in stream order), create (a physical allocation) or
//                              array; impossible: more than any GPU has is refused, and host: more
//                              pinned memory than any host has. Nothing waits for the kernel
//   gives_way graph WAY        a graph whose nodes allocate 60 %, uploaded or launched
//   gives_way context          a second context; SIMCUDA_CONTEXT_MEMORY says how large it is
//   gives_way calls            each driver function that takes a little memory on its own
//   gives_way functions        only prints the names of memlab's list of such functions
//   gives_way child HOW        a child process, started by fork, vfork or spawn, gets 60 %
//
// Ends with code 5 when something has taken 20 seconds.
//
// Recorded ("beside malloc"): 9 device allocations, all freed.
#include <cuda.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstring>
#include <string>
#include <vector>

#include "spinning.hpp"

using namespace program;

extern char** environ;

namespace {

constexpr std::size_t pieces = 8;

void allocate_and_free(std::size_t piece) {
    std::vector<CUdeviceptr> blocks;
    for (std::size_t i = 0; i < pieces; ++i) {
        blocks.push_back(allocate(piece));
    }
    for (const CUdeviceptr block : blocks) {
        release(block);
    }
}

CUresult take_array(std::size_t bytes) {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    shape.Width = 4096;
    shape.Height = 1024;
    shape.Depth = bytes / (shape.Width * shape.Height * 16);
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 4;
    CUarray array = nullptr;  // destroyed with the context: that waits, by itself as well
    return cuArray3DCreate(&array, &shape);
}

CUresult take_physical(std::size_t bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = cuMemCreate(&handle, bytes, &properties, 0);
    return result != CUDA_SUCCESS ? result : cuMemRelease(handle);
}

int beside(const char* what) {
    const std::size_t piece = tenths_of_the_device(1);
    allocate_and_free(piece);
    CUstream busy = nullptr;
    CUstream other = nullptr;
    CHECK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    Spin spin(busy);
    spin.start();
    CUdeviceptr taken = 0;
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (std::strcmp(what, "impossible") == 0) {
        result = cuMemAlloc(&taken, std::size_t{1} << 45);
    } else if (std::strcmp(what, "host") == 0) {
        void* host = nullptr;
        result = cuMemHostAlloc(&host, std::size_t{1} << 46, 0);
    } else if (std::strcmp(what, "async") == 0) {
        result = cuMemAllocAsync(&taken, 6 * piece, other);
    } else if (std::strcmp(what, "create") == 0) {
        result = take_physical(6 * piece);
    } else if (std::strcmp(what, "array") == 0) {
        result = take_array(6 * piece);
    } else {
        result = cuMemAlloc(&taken, 6 * piece);
    }
    SAY("%s: %d\n", what, static_cast<int>(result));
    spin.go();
    CHECK(cuCtxSynchronize());
    if (taken != 0) {
        release(taken);
    }
    spin.done();
    return 0;
}

int graph_memory(const char* way) {
    const std::size_t piece = tenths_of_the_device(1);
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraph graph = nullptr;
    CHECK(cuGraphCreate(&graph, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    parameters.bytesize = 6 * piece;
    CUgraphNode made = nullptr;
    CUgraphNode freed = nullptr;
    allocate_and_free(piece);
    CHECK(cuGraphAddMemAllocNode(&made, graph, nullptr, 0, &parameters));
    CHECK(cuGraphAddMemFreeNode(&freed, graph, &made, 1, parameters.dptr));
    CUgraphExec executable = nullptr;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    if (std::strcmp(way, "upload") == 0) {
        SAY("upload: %d\n", static_cast<int>(cuGraphUpload(executable, stream)));
    }
    SAY("launch: %d\n", static_cast<int>(cuGraphLaunch(executable, stream)));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    return 0;
}

int second_context() {
    allocate_and_free(tenths_of_the_device(1));
    CUcontext context = nullptr;
    const CUresult result = program::create_context(&context);
    SAY("context: %d\n", static_cast<int>(result));
    return 0;
}

/// Each under a fault of the simulated driver in turn.
int calls() {
    allocate_and_free(tenths_of_the_device(1));
    CUmodule module = nullptr;
    CHECK(cuModuleLoadData(&module, spin_kernels));
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, module, "go"));
    CUlibrary library = nullptr;
    CHECK(cuLibraryLoadData(&library, spin_kernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUmodule of_library = nullptr;
    CHECK(cuLibraryGetModule(&of_library, library));
    CUkernel kernel = nullptr;
    CHECK(cuLibraryGetKernel(&kernel, library, "go"));
    CHECK(cuKernelGetFunction(&function, kernel));
    CHECK(cuFuncLoad(function));
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUstream urgent = nullptr;
    CHECK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, 0));
    CUevent event = nullptr;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, std::size_t{2} << 20));
    void* flag = nullptr;
    CHECK(cuMemHostAlloc(&flag, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    void* arguments[] = {&flag};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool = nullptr;
    CHECK(cuMemPoolCreate(&pool, &properties));
    CHECK(cuStreamSynchronize(stream));
    SAY("all calls succeeded\n");
    CHECK(cuMemPoolDestroy(pool));
    CHECK(cuMemFreeHost(flag));
    return 0;
}

/// A context takes a fifth of a second to make; the parent has as long.
int in_child(std::size_t bytes) {
    use_device();
    CUdeviceptr taken = 0;
    SAY("the child's memory: %d\n", static_cast<int>(cuMemAlloc(&taken, bytes)));
    return 0;
}

int child(const char* program, const char* how) {
    const std::size_t piece = tenths_of_the_device(1);
    allocate_and_free(piece);
    const std::string bytes = std::to_string(6 * piece);
    const char* arguments[] = {program, "in-child", bytes.c_str(), nullptr};
    auto* const given = const_cast<char**>(arguments);
    pid_t process = -1;
    if (std::strcmp(how, "spawn") == 0) {
        (void)posix_spawn(&process, program, nullptr, nullptr, given, environ);
    } else {
        process = std::strcmp(how, "vfork") == 0 ? vfork() : fork();
        if (process == 0) {
            (void)execv(program, given);
            _exit(127);
        }
    }
    int status = 0;
    (void)waitpid(process, &status, 0);
    // The simulated driver's memory is each process's own: whether the device has it back.
    if (auto* const used_bytes = simulated<std::uint64_t()>("simcuda_used")) {
        for (int tenths = 0; tenths < 100 && used_bytes() >= piece; ++tenths) {
            (void)usleep(10'000);
        }
        SAY("the device has it back: %s\n", used_bytes() < piece ? "yes" : "no");
    }
    SAY("the child ended with %d\n", status);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    const char* what = argc > 2 ? argv[2] : "";
    if (mode == "in-child") {
        return in_child(std::strtoull(what, nullptr, 10));
    }
    if (mode == "functions") {
#define MEMLAB_HOOK(symbol, base, version, per_thread) SAY("%s\n", #symbol);
#include "interpose/driver/implicit_functions.inc"
#undef MEMLAB_HOOK
        return 0;
    }
    must_end_within(20);
    use_device();
    if (mode == "beside") {
        return beside(what);
    }
    if (mode == "graph") {
        return graph_memory(what);
    }
    if (mode == "context") {
        return second_context();
    }
    if (mode == "calls") {
        return calls();
    }
    return mode == "child" ? child(argv[0], what) : 2;
}
