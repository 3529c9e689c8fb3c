// What the driver takes memory for on its own, one thing after the other, so that each has a row in
// the ledger. With SIMCUDA_CONTEXT_MEMORY and SIMCUDA_TAKES the simulated driver gives each a size.
//
//   ledger           a second context, a module from an image in the program, a library (one of its
//                    kernels asked for, one only launched), streams, events, a limit, a graph
//   ledger given     the same, and everything given back but the first context
//   ledger waits     the first context only, for 0.9 seconds
//   ledger many      20000 streams one after the other: more than there is time to measure
//   ledger forks     children that start NVML, at any moment of the first half second
//   ledger kernels   a kernel asked for 20000 times, unloaded and loaded again in between
//   ledger uploads [given]  a graph with a node that allocates 6 MiB, instantiated and uploaded;
//   given:
//                    and destroyed
//   ledger captures  modules loaded while a stream captures in relaxed mode: not measured
//   ledger launches  two kernels that were not asked for, each launched 2000 times, and one with a
//                    second context there
//   ledger locals    a kernel whose threads have 40,000 bytes of local memory, launched twice
//   ledger threads   200 threads, each with a stream that nobody destroys
//   ledger execs     300 executable graphs, each launched and none uploaded
//   ledger streams [COUNT]  so many streams (6000) that nobody destroys
//
// Recorded: 1 device allocation of 1,000,000 bytes and 1 from the driver's pool of 50,000, both
// freed.
#include <dlfcn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "program.hpp"

using namespace program;

namespace {

// Kernels that do nothing, as PTX.
constexpr char image[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry asked() { ret; }\n.visible .entry launched() { ret; }\n";

// One that needs its local memory: which of it is not known before it runs.
constexpr char local_image[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry memlab_local_40000(.param .u64 out, .param .u32 to, .param .u32 from)
{
    .local .align 4 .b8 values[40000];
    .reg .b32 %r<4>;
    .reg .b64 %d<8>;
    ld.param.u64 %d1, [out];
    ld.param.u32 %r1, [to];
    ld.param.u32 %r2, [from];
    mov.u64 %d2, values;
    mul.wide.u32 %d3, %r1, 4;
    mul.wide.u32 %d4, %r2, 4;
    add.u64 %d5, %d2, %d3;
    add.u64 %d6, %d2, %d4;
    st.local.u32 [%d5], %r1;
    ld.local.u32 %r3, [%d6];
    cvta.to.global.u64 %d7, %d1;
    st.global.u32 [%d7], %r3;
    ret;
}
)";

[[gnu::noinline]] CUcontext second_context() {
    CUcontext context = nullptr;
#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&context, nullptr, 0, 0));
#else
    CHECK(cuCtxCreate(&context, 0, 0));
#endif
    CUcontext popped = nullptr;
    CHECK(cuCtxPopCurrent(&popped));
    return context;
}

[[gnu::noinline]] CUmodule load_module() {
    CUmodule module = nullptr;
    CHECK(cuModuleLoadData(&module, image));
    return module;
}

void launch(CUfunction function) {
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CHECK(cuCtxSynchronize());
}

CUkernel kernel_of(CUlibrary library, const char* name) {
    CUkernel kernel = nullptr;
    CHECK(cuLibraryGetKernel(&kernel, library, name));
    return kernel;
}

[[gnu::noinline]] int launches() {
    CUlibrary library = nullptr;
    CHECK(cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
    for (int i = 0; i < 2000; ++i) {
        for (const char* name : {"launched", "asked"}) {
            launch(reinterpret_cast<CUfunction>(kernel_of(library, name)));
        }
    }
    (void)second_context();
    launch(reinterpret_cast<CUfunction>(kernel_of(library, "launched")));
    SAY("launched\n");
    return 0;
}

[[gnu::noinline]] int locals() {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CHECK(cuModuleLoadData(&module, local_image));
    CHECK(cuModuleGetFunction(&function, module, "memlab_local_40000"));
    CUdeviceptr out = allocate(4);
    unsigned to = 7;
    unsigned from = 7;
    void* arguments[] = {&out, &to, &from};
    for (int i = 0; i < 2; ++i) {
        CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
        CHECK(cuCtxSynchronize());
    }
    release(out);
    SAY("launched\n");
    return 0;
}

[[gnu::noinline]] CUstream library_stream() {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

int threads(CUcontext context) {
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, load_module(), "launched"));
    for (int i = 0; i < 200; ++i) {
        std::thread([=] {
            CHECK(cuCtxSetCurrent(context));
            CUstream stream = library_stream();
            CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
            CHECK(cuStreamSynchronize(stream));
        }).join();
    }
    SAY("made\n");
    return 0;
}

[[gnu::noinline]] CUgraphExec executable(CUgraph graph) {
    CUgraphExec made = nullptr;
    CHECK(cuGraphInstantiate(&made, graph, 0));
    return made;
}

int execs() {
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, load_module(), "launched"));
    CUgraph graph = nullptr;
    CHECK(cuGraphCreate(&graph, 0));
    for (int i = 0; i < 40; ++i) {
        CUDA_KERNEL_NODE_PARAMS parameters{};
        parameters.func = function;
        parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
        parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
        CUgraphNode node = nullptr;
        CHECK(cuGraphAddKernelNode(&node, graph, nullptr, 0, &parameters));
    }
    for (int i = 0; i < 300; ++i) {
        CHECK(cuGraphLaunch(executable(graph), nullptr));
        CHECK(cuCtxSynchronize());
    }
    SAY("launched\n");
    return 0;
}

int streams(int count) {
    for (int i = 0; i < count; ++i) {
        library_stream();
    }
    CHECK(cuCtxSynchronize());
    SAY("made\n");
    return 0;
}

/// @param nodes how many launches of a kernel the graph has beside the memory of its allocation
/// node.
[[gnu::noinline]] int uploads(bool destroyed, int nodes) {
    CUgraph graph = nullptr;
    CHECK(cuGraphCreate(&graph, 0));
    CUfunction function = nullptr;
    if (nodes > 0) {
        CHECK(cuModuleGetFunction(&function, load_module(), "launched"));
    }
    for (int i = 0; i < nodes; ++i) {
        CUDA_KERNEL_NODE_PARAMS launch{};
        launch.func = function;
        launch.gridDimX = launch.gridDimY = launch.gridDimZ = 1;
        launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1;
        CUgraphNode kernel = nullptr;
        CHECK(cuGraphAddKernelNode(&kernel, graph, nullptr, 0, &launch));
    }
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    parameters.bytesize = std::size_t{6} << 20;
    CUgraphNode node = nullptr;
    CHECK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters));
    CUgraphExec executable = nullptr;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphUpload(executable, nullptr));
    CHECK(cuCtxSynchronize());
    if (destroyed) {
        CHECK(cuGraphExecDestroy(executable));
    }
    SAY("uploaded\n");
    return 0;
}

int kernels() {
    for (int round = 0; round < 2; ++round) {
        CUlibrary library = nullptr;
        CHECK(cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
        CUkernel kernel = nullptr;
        CHECK(cuLibraryGetKernel(&kernel, library, "asked"));
        for (int i = 0; i < 10000; ++i) {
            CUfunction function = nullptr;
            CHECK(cuKernelGetFunction(&function, kernel));
        }
        CHECK(cuLibraryUnload(library));
    }
    SAY("asked for\n");
    return 0;
}

int captures() {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 3; ++i) {
        load_module();
    }
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph));
    SAY("captured\n");
    return 0;
}

/// NVML's locks are the parent's: one that another thread held at the fork is taken forever.
int forks() {
    int hung = 0;
    for (int i = 0; i < 50; ++i) {
        (void)usleep(10'000);
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
            auto* const init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
            _exit(init() == 0 ? 0 : 1);
        }
        int status = 0;
        (void)waitpid(child, &status, 0);
        hung += status == 0 ? 0 : 1;
    }
    SAY("children that hung: %d\n", hung);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const bool given = argc == 2 && std::strcmp(argv[1], "given") == 0;
    const CUcontext first = use_device();
    if (argc == 2 && std::strcmp(argv[1], "captures") == 0) {
        return captures();
    }
    if (argc == 2 && std::strcmp(argv[1], "launches") == 0) {
        return launches();
    }
    if (argc == 2 && std::strcmp(argv[1], "locals") == 0) {
        return locals();
    }
    if (argc == 2 && std::strcmp(argv[1], "threads") == 0) {
        return threads(first);
    }
    if (argc == 2 && std::strcmp(argv[1], "execs") == 0) {
        return execs();
    }
    if (argc >= 2 && std::strcmp(argv[1], "streams") == 0) {
        return streams(argc == 3 ? std::atoi(argv[2]) : 6000);
    }
    if (argc == 2 && std::strcmp(argv[1], "waits") == 0) {
        usleep(900'000);
        SAY("waited\n");
        return 0;
    }
    if (argc == 2 && std::strcmp(argv[1], "forks") == 0) {
        return forks();
    }
    if (argc == 2 && std::strcmp(argv[1], "many") == 0) {
        for (int i = 0; i < 20000; ++i) {
            CUstream stream = nullptr;
            CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            CHECK(cuStreamDestroy(stream));
        }
        SAY("made\n");
        return 0;
    }
    if (argc >= 2 && std::strcmp(argv[1], "uploads") == 0) {
        return uploads(argc == 3 && std::strcmp(argv[2], "given") == 0,
                       argc == 3 && std::strcmp(argv[2], "nodes") == 0 ? 20000 : 0);
    }
    if (argc == 2 && std::strcmp(argv[1], "kernels") == 0) {
        return kernels();
    }
    const CUcontext second = second_context();
    const CUdeviceptr memory = allocate(1000000);
    CUmodule module = load_module();

    CUlibrary library = nullptr;
    CHECK(cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUkernel asked = nullptr;
    CUkernel launched = nullptr;
    CUfunction function = nullptr;
    CHECK(cuLibraryGetKernel(&asked, library, "asked"));
    CHECK(cuLibraryGetKernel(&launched, library, "launched"));
    CHECK(cuKernelGetFunction(&function, asked));
    launch(function);
    launch(reinterpret_cast<CUfunction>(launched));

    CUstream streams[3] = {};
    for (CUstream& stream : streams) {
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    CUevent event = nullptr;
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, std::size_t{64} << 20));

    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphInstantiate(&executable, graph, 0));

    CUdeviceptr async = 0;
    CHECK(cuMemAllocAsync(&async, 50000, nullptr));
    CHECK(cuStreamSynchronize(nullptr));
    CHECK(cuMemFreeAsync(async, nullptr));
    CHECK(cuStreamSynchronize(nullptr));

    if (given) {
        CHECK(cuGraphExecDestroy(executable));
        for (CUstream stream : streams) {
            CHECK(cuStreamDestroy(stream));
        }
        CHECK(cuModuleUnload(module));
        CHECK(cuLibraryUnload(library));
        CHECK(cuCtxDestroy(second));
    }
    CUcontext current = nullptr;
    CHECK(cuCtxGetCurrent(&current));
    release(memory);
    SAY("%s\n", current == first ? "the first context is current" : "another context is current");
    return 0;
}
