// Allocating and freeing while a stream is being captured, in the mode that the argument names:
// relaxed, global or thread_local. Before it the program has allocated and freed, so that a cache
// could answer. Prints every answer; plain CUDA refuses in the last two modes and the capture ends
// invalidated.
//
// Recorded: every allocation that succeeded; allocations - frees = live = 0.
#include <cstring>

#include "program.hpp"

using namespace program;

int main(int argc, char** argv) {
    const char* name = argc == 2 ? argv[1] : "";
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (std::strcmp(name, "global") == 0) {
        mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    } else if (std::strcmp(name, "thread_local") == 0) {
        mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    }
    use_device();
    const CUdeviceptr early = allocate(90000);
    release(allocate(90000));
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    for (int round = 0; round < 2; ++round) {
        CHECK(cuStreamBeginCapture(stream, mode));
        CUdeviceptr block = 0;
        const CUresult allocated = cuMemAlloc(&block, 90000);
        SAY("cuMemAlloc in the capture: %d\n", static_cast<int>(allocated));
        if (allocated == CUDA_SUCCESS) {
            SAY("cuMemFree in the capture: %d\n", static_cast<int>(cuMemFree(block)));
        }
        CUgraph graph = nullptr;
        SAY("cuStreamEndCapture: %d\n", static_cast<int>(cuStreamEndCapture(stream, &graph)));
        if (graph != nullptr) {
            CHECK(cuGraphDestroy(graph));
        }
    }
    CHECK(cuStreamBeginCapture(stream, mode));
    SAY("cuMemFree of earlier memory in a capture: %d\n", static_cast<int>(cuMemFree(early)));
    CUgraph graph = nullptr;
    const CUresult ended = cuStreamEndCapture(stream, &graph);
    SAY("cuStreamEndCapture: %d\n", static_cast<int>(ended));
    if (ended != CUDA_SUCCESS) {
        SAY("cuMemFree after it: %d\n", static_cast<int>(cuMemFree(early)));
    }
    release(allocate(90000));
    CHECK(cuStreamDestroy(stream));
    return 0;
}
