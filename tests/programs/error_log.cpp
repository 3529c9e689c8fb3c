// What the driver writes into its error log (CUDA 12.9) while functions of a module and kernels of
// a library are launched for the first time, often, in a capture, and after their code was
// unloaded: nothing, since the program makes no error. Prints each line of it.
//
// Recorded: one allocation; nothing live at the end.

#include "program.hpp"

using namespace program;

namespace {

constexpr char image[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry first() { ret; }\n.visible .entry second() { ret; }\n";

int lines = 0;

void CUDA_CB log_line(void* /*data*/, int /*level*/, char* text, std::size_t length) {
    ++lines;
    SAY("%.*s\n", static_cast<int>(length), text);
}

void watch_the_error_log() {
    using Register = CUresult (*)(void (*)(void*, int, char*, std::size_t), void*, void**);
    void* found = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void* handle = nullptr;
    if (cuGetProcAddress("cuLogsRegisterCallback", &found, 12090, 0, &status) == CUDA_SUCCESS &&
        found != nullptr) {
        CHECK(reinterpret_cast<Register>(found)(log_line, nullptr, &handle));
    }
}

void launch(CUfunction function, CUstream stream) {
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
}

void launch_in_a_capture(CUfunction function, CUstream stream) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(function, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
}

void launch_all(CUstream stream) {
    CUmodule module = nullptr;
    CUlibrary library = nullptr;
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
    for (const char* name : {"first", "second"}) {
        CUfunction function = nullptr;
        CUkernel kernel = nullptr;
        CUfunction of_kernel = nullptr;
        CHECK(cuModuleGetFunction(&function, module, name));
        CHECK(cuLibraryGetKernel(&kernel, library, name));
        launch(function, stream);
        launch(reinterpret_cast<CUfunction>(kernel), stream);
        CHECK(cuKernelGetFunction(&of_kernel, kernel));
        launch(of_kernel, stream);
        launch_in_a_capture(function, stream);
        launch_in_a_capture(reinterpret_cast<CUfunction>(kernel), stream);
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuModuleUnload(module));
    CHECK(cuLibraryUnload(library));
}

}  // namespace

int main() {
    use_device();
    watch_the_error_log();
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr memory = allocate(4);
    for (int i = 0; i < 20; ++i) {
        launch_all(stream);
    }
    release(memory);
    CHECK(cuStreamDestroy(stream));
    SAY("%d lines\n", lines);
    return 0;
}
