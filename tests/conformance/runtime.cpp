// What the runtime API answers where it adds to the driver's answers: see driver.cpp.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/conformance/check.hpp"

using memlab::conformance::check;
using memlab::conformance::check_true;

namespace {

void allocation() {
    void* p = &p;
    check("cudaMalloc of 0 bytes", cudaMalloc(&p, 0), 0);
    check_true("gives null", p == nullptr);
    check("cudaMalloc to null", cudaMalloc(nullptr, 16), 1);
    check("which is remembered", cudaPeekAtLastError(), 1);
    check("and read once", cudaGetLastError(), 1);
    check("and then forgotten", cudaGetLastError(), 0);
    check("cudaMalloc of 2^60 bytes", cudaMalloc(&p, 1ULL << 60), 2);
    check("cudaFree(null)", cudaFree(nullptr), 0);
    check("cudaFree of 0x1234", cudaFree(reinterpret_cast<void*>(uintptr_t{0x1234})), 1);
    int on_stack = 0;
    check("cudaFree of a stack address", cudaFree(&on_stack), 1);
    check("cudaMalloc", cudaMalloc(&p, 100), 0);
    cudaPointerAttributes attributes{};
    check("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, p), 0);
    check("type", attributes.type, cudaMemoryTypeDevice);
    check("device", attributes.device, 0);
    check_true("no host pointer", attributes.hostPointer == nullptr);
    check("cudaPointerGetAttributes of a stack address",
          cudaPointerGetAttributes(&attributes, &on_stack), 0);
    check("its type", attributes.type, cudaMemoryTypeUnregistered);
    check("its device", attributes.device, -2);
    check_true("its host pointer", attributes.hostPointer == &on_stack);
    check("cudaFree of an interior pointer", cudaFree(static_cast<char*>(p) + 4), 1);
    check("cudaFree", cudaFree(p), 0);
    check("cudaFree a second time", cudaFree(p), 1);
    size_t pitch = 0;
    check("cudaMallocPitch", cudaMallocPitch(&p, &pitch, 100, 4), 0);
    check("pitch", static_cast<long long>(pitch), 512);
    check("cudaFree of pitched memory", cudaFree(p), 0);
    check("cudaMallocPitch of width 0", cudaMallocPitch(&p, &pitch, 0, 4), 0);
    cudaPitchedPtr box{};
    check("cudaMalloc3D", cudaMalloc3D(&box, {100, 4, 3}), 0);
    check("its pitch", static_cast<long long>(box.pitch), 512);
    check("its width", static_cast<long long>(box.xsize), 100);
    check("cudaFree of it", cudaFree(box.ptr), 0);
    check("cudaMallocManaged", cudaMallocManaged(&p, 4096, cudaMemAttachGlobal), 0);
    std::memset(p, 1, 4096);
    cudaPointerGetAttributes(&attributes, p);
    check("type of managed memory", attributes.type, cudaMemoryTypeManaged);
    check("cudaFree of managed memory", cudaFree(p), 0);
    check("cudaMallocManaged of 0 bytes", cudaMallocManaged(&p, 0, cudaMemAttachGlobal), 0);
    check_true("gives null", p == nullptr);
    check("cudaMallocHost", cudaMallocHost(&p, 100), 0);
    check("cudaFree of pinned memory", cudaFree(p), 1);
    check("cudaFreeHost", cudaFreeHost(p), 0);
    check("cudaFreeHost(null)", cudaFreeHost(nullptr), 0);
    check("cudaMallocHost of 0 bytes", cudaMallocHost(&p, 0), 0);
    cudaGetLastError();
}

void async() {
    cudaStream_t stream;
    void* p = nullptr;
    check("cudaStreamCreate", cudaStreamCreate(&stream), 0);
    check("cudaMallocAsync", cudaMallocAsync(&p, 100, stream), 0);
    check("cudaFreeAsync", cudaFreeAsync(p, stream), 0);
    check("cudaMallocAsync of 0 bytes", cudaMallocAsync(&p, 0, stream), 0);
    check_true("gives null", p == nullptr);
    check("cudaFreeAsync(null)", cudaFreeAsync(nullptr, stream), 0);
    check("cudaMallocAsync for cudaFree", cudaMallocAsync(&p, 100, stream), 0);
    check("cudaFree of a cudaMallocAsync pointer", cudaFree(p), 0);
    check("cudaMalloc for cudaFreeAsync", cudaMalloc(&p, 100), 0);
    check("cudaFreeAsync of a cudaMalloc pointer", cudaFreeAsync(p, stream), 0);
    check("cudaStreamSynchronize", cudaStreamSynchronize(stream), 0);
    check("cudaStreamDestroy", cudaStreamDestroy(stream), 0);
}

void copies() {
    std::vector<unsigned char> out(1 << 20, 3);
    std::vector<unsigned char> in(1 << 20, 0);
    void* p = nullptr;
    cudaMalloc(&p, out.size());
    check("cudaMemcpy to the device", cudaMemcpy(p, out.data(), out.size(), cudaMemcpyHostToDevice),
          0);
    check("cudaMemset", cudaMemset(p, 4, 10), 0);
    check("cudaMemcpy by default direction", cudaMemcpy(in.data(), p, in.size(), cudaMemcpyDefault),
          0);
    check_true("contents", in[9] == 4 && in[10] == 3 && in.back() == 3);
    check("cudaMemcpy of a wrong direction",
          cudaMemcpy(in.data(), p, 4, static_cast<cudaMemcpyKind>(7)), 21);
    check("cudaMemcpy2D", cudaMemcpy2D(in.data(), 8, p, 512, 8, 4, cudaMemcpyDeviceToHost), 0);
    check("cudaFree", cudaFree(p), 0);
    cudaGetLastError();
}

void capture() {
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    void* p = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
        check("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, mode), 0);
        check("cudaMalloc in a capture", cudaMalloc(&p, 16), 900);
        check("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph), 901);
        check("last error", cudaGetLastError(), 901);
        check("cudaMalloc after the capture", cudaMalloc(&p, 16), 0);
        check("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, mode), 0);
        check("cudaFree in a capture", cudaFree(p), 900);
        check("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph), 901);
        check("cudaFree after the capture", cudaFree(p), 0);
        cudaGetLastError();
    }
    // A free of nothing reaches the driver, an allocation of nothing does not.
    check("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), 0);
    check("cudaMalloc of 0 bytes in a capture", cudaMalloc(&p, 0), 0);
    check("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph), 0);
    check("cudaGraphDestroy", cudaGraphDestroy(graph), 0);
    check("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), 0);
    check("cudaFree(null) in a capture", cudaFree(nullptr), 900);
    check("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph), 901);
    cudaGetLastError();
    check("relaxed: cudaStreamBeginCapture",
          cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), 0);
    check("relaxed: cudaMalloc", cudaMalloc(&p, 16), 0);
    check("relaxed: cudaFree", cudaFree(p), 0);
    check("relaxed: cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph), 0);
    check("cudaGraphDestroy", cudaGraphDestroy(graph), 0);
    check("cudaStreamDestroy", cudaStreamDestroy(stream), 0);
}

void device() {
    int count = 0;
    check("cudaGetDeviceCount", cudaGetDeviceCount(&count), 0);
    check("cudaSetDevice of a device that is not there", cudaSetDevice(count), 101);
    check("cudaGetLastError", cudaGetLastError(), 101);
    int current = -1;
    check("cudaGetDevice", cudaGetDevice(&current), 0);
    check("device 0 is current", current, 0);
    cudaDeviceProp properties;
    check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, 0), 0);
    size_t free_bytes = 0;
    size_t total = 0;
    check("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total), 0);
    check_true("free within total", free_bytes <= total);
    check_true("cudaGetErrorName of 2", std::strcmp(cudaGetErrorName(cudaErrorMemoryAllocation),
                                                    "cudaErrorMemoryAllocation") == 0);
    check_true("cudaGetErrorString of 2",
               std::strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult status{};
    check("cudaGetDriverEntryPointByVersion",
          cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 12000, cudaEnableDefault, &status),
          0);
    check_true("finds cuMemAlloc", entry != nullptr && status == cudaDriverEntryPointSuccess);
    check("of an unknown name",
          cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &entry, 12000, cudaEnableDefault,
                                           &status),
          0);
    check("status of an unknown name", status, cudaDriverEntryPointSymbolNotFound);
}

void reset() {
    void* p = nullptr;
    check("cudaMalloc before the reset", cudaMalloc(&p, 100), 0);
    check("cudaDeviceReset", cudaDeviceReset(), 0);
    check("cudaFree after the reset", cudaFree(p), 1);
    cudaGetLastError();
    check("cudaMalloc after the reset", cudaMalloc(&p, 100), 0);
    check("cudaFree", cudaFree(p), 0);
    check("cudaDeviceSynchronize", cudaDeviceSynchronize(), 0);
}

}  // namespace

int main() {
    device();
    allocation();
    async();
    copies();
    capture();
    reset();
    return memlab::conformance::failures == 0 ? 0 : 1;
}
