// A kernel has failed. From the first call that says so, allocations and frees say so as well, also
// those that a cache could serve. The argument names that first call: stream_query, event_query,
// record, elapsed, or synchronize (in another thread).
#include <cuda.h>

#include <cstring>
#include <thread>

#include "program.hpp"

using namespace program;

// As <cuda.h> declares it, but weak; and what it was before CUDA 12.8.
extern "C" {
__attribute__((weak)) CUresult CUDAAPI cuEventElapsedTime(float*, CUevent, CUevent);
CUresult CUDAAPI older_elapsed_time(float*, CUevent, CUevent) __asm__("cuEventElapsedTime");
}

namespace {

constexpr std::size_t mib = 1 << 20;

constexpr char faulting_image[] =
    ".version 8.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry memlab_fault() { trap; }\n";

CUcontext context;
CUstream stream;
CUevent begin;
CUevent end;

CUresult ask(const char* call) {
    if (std::strcmp(call, "stream_query") == 0) {
        return cuStreamQuery(stream);
    }
    if (std::strcmp(call, "event_query") == 0) {
        return cuEventQuery(end);
    }
    if (std::strcmp(call, "record") == 0) {
        return cuEventRecord(begin, stream);
    }
    if (std::strcmp(call, "elapsed") == 0) {
        float milliseconds = 0;
        return cuEventElapsedTime != nullptr ? cuEventElapsedTime(&milliseconds, begin, end)
                                             : older_elapsed_time(&milliseconds, begin, end);
    }
    CUresult answer = CUDA_SUCCESS;
    std::thread([&] {
        CHECK(cuCtxSetCurrent(context));
        answer = cuCtxSynchronize();
    }).join();
    return answer;
}

}  // namespace

int main(int argc, char** argv) {
    context = use_device();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    const CUdeviceptr kept = allocate(3 * mib);
    release(allocate(3 * mib));
    CUmodule module = nullptr;
    CUfunction fault = nullptr;
    CHECK(cuModuleLoadData(&module, faulting_image));
    CHECK(cuModuleGetFunction(&fault, module, "memlab_fault"));
    CHECK(cuEventRecord(begin, stream));
    CHECK(cuCtxSynchronize());
    CHECK(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    (void)cuEventRecord(end, stream);
    CUresult told = CUDA_SUCCESS;
    for (int tries = 0; tries < 5000 && (told == CUDA_SUCCESS || told == CUDA_ERROR_NOT_READY);
         ++tries) {
        told = ask(argc == 2 ? argv[1] : "");
        ::usleep(1000);
    }
    CUdeviceptr p = 0;
    const CUresult allocated = cuMemAlloc(&p, 3 * mib);
    SAY("told: %d, cuMemAlloc: %d, of nothing: %d, cuMemFree: %d\n", told, allocated,
        cuMemAlloc(&p, 0), cuMemFree(kept));
    return told == allocated ? 0 : 1;
}
