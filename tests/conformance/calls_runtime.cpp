// Runtime API calls with good, odd and bad arguments over all families of memory; see
// calls_driver.cpp. Built with the shared and with the static runtime.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <thread>

#include "tests/conformance/transcript.hpp"

using memlab::conformance::Group;
using memlab::conformance::run_group;
using memlab::conformance::transcript;

namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

std::uint64_t number(const void* p) {
    return reinterpret_cast<std::uint64_t>(p);
}

void* pointer(std::uint64_t address) {
    return reinterpret_cast<void*>(address);
}

void* behind(void* p, std::size_t bytes) {
    return static_cast<char*>(p) + bytes;
}

void last_errors() {
    CALL(cudaPeekAtLastError());
    CALL(cudaGetLastError());
    CALL(cudaGetLastError());
}

void describe(const void* p) {
    cudaPointerAttributes seen{};
    transcript.place("of", number(p));
    CALL(cudaPointerGetAttributes(&seen, p));
    transcript.value("type", seen.type);
    transcript.value("device", seen.device);
    transcript.place("on the device", number(seen.devicePointer));
    transcript.place("on the host", number(seen.hostPointer));
}

void* allocate(const char* name, std::size_t bytes) {
    void* p = nullptr;
    transcript.value("bytes", static_cast<long long>(bytes));
    CALL(cudaMalloc(&p, bytes));
    transcript.name(name, number(p), bytes);
    transcript.value("aligned to 512", number(p) % 512 == 0);
    return p;
}

void release(void* p) {
    transcript.place("of", number(p));
    CALL(cudaFree(p));
    transcript.forget(number(p));
}

void device_memory() {
    transcript.scene("the first call");
    CALL(cudaFree(nullptr));
    transcript.scene("sizes");
    constexpr std::size_t sizes[] = {1,   100,     512,     513,      64 * kib,
                                     mib, mib + 1, 3 * mib, 20 * mib, 64 * mib};
    constexpr std::size_t count = std::size(sizes);
    void* blocks[count];
    char names[count][16];
    // Gone again when the address behind block 7 is freed: no other allocation may begin there.
    void* neighbour = nullptr;
    for (std::size_t i = 0; i < count; ++i) {
        std::snprintf(names[i], sizeof names[i], "s%zu", i);
        blocks[i] = allocate(names[i], sizes[i]);
        describe(behind(blocks[i], sizes[i] - 1));
        CALL(cudaMemset(blocks[i], static_cast<int>(i), sizes[i]));
        if (i == 7 && cudaMalloc(&neighbour, 2 * mib) != cudaSuccess) {
            return;
        }
    }
    (void)cudaFree(neighbour);
    for (std::size_t i = 0; i < count; ++i) {
        unsigned char last = 0;
        CALL(cudaMemcpy(&last, behind(blocks[i], sizes[i] - 1), 1, cudaMemcpyDeviceToHost));
        transcript.value("it is", last);
    }
    transcript.scene("bad frees");
    int on_stack = 0;
    CALL(cudaFree(&on_stack));
    last_errors();
    CALL(cudaFree(pointer(0x1234)));
    CALL(cudaFree(behind(blocks[0], 1)));
    CALL(cudaFree(behind(blocks[7], mib)));
    CALL(cudaFree(behind(blocks[7], 3 * mib)));
    CALL(cudaFreeHost(blocks[3]));
    CALL(cudaFreeArray(nullptr));
    last_errors();
    transcript.scene("frees");
    for (std::size_t i = 0; i < count; ++i) {
        release(blocks[i]);
        CALL(cudaFree(blocks[i]));
        last_errors();
        describe(blocks[i]);
        last_errors();
    }
    transcript.scene("bad allocations");
    void* p = &on_stack;
    CALL(cudaMalloc(&p, 0));
    transcript.place("it is", number(p));
    CALL(cudaMalloc(nullptr, 16));
    CALL(cudaMalloc(nullptr, 0));
    last_errors();
    CALL(cudaMalloc(&p, std::size_t{1} << 60));
    last_errors();
    CALL(cudaMalloc(&p, SIZE_MAX));
    last_errors();
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    CALL(cudaMemGetInfo(&free_bytes, &total));
    CALL(cudaMalloc(&p, total + mib));
    CALL(cudaMemGetInfo(nullptr, nullptr));
    last_errors();
    transcript.scene("after an error all is well");
    release(allocate("well", 1000));
    last_errors();
}

void shapes() {
    void* p = nullptr;
    std::size_t pitch = 0;
    transcript.scene("pitch");
    for (const std::size_t width : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, 3 * mib}) {
        p = nullptr;
        pitch = 0;
        transcript.value("width", static_cast<long long>(width));
        CALL(cudaMallocPitch(&p, &pitch, width, 7));
        transcript.value("pitch", static_cast<long long>(pitch));
        transcript.name("pitched", number(p), pitch * 7);
        if (p != nullptr) {
            describe(behind(p, pitch * 7 - 1));
        }
        release(p);
    }
    CALL(cudaMallocPitch(&p, &pitch, 1000, 0));
    CALL(cudaMallocPitch(&p, nullptr, 1000, 7));
    CALL(cudaMallocPitch(nullptr, &pitch, 1000, 7));
    last_errors();
    CALL(cudaMallocPitch(&p, &pitch, mib, std::size_t{1} << 44));
    last_errors();
    transcript.scene("3D");
    cudaPitchedPtr box{};
    for (const cudaExtent extent : {cudaExtent{100, 10, 5}, cudaExtent{0, 10, 5},
                                    cudaExtent{100, 0, 5}, cudaExtent{3 * mib, 2, 2}}) {
        box = {};
        CALL(cudaMalloc3D(&box, extent));
        transcript.value("pitch", static_cast<long long>(box.pitch));
        transcript.value("xsize", static_cast<long long>(box.xsize));
        transcript.value("ysize", static_cast<long long>(box.ysize));
        transcript.value("null", box.ptr == nullptr);
        CALL(cudaFree(box.ptr));
    }
    CALL(cudaMalloc3D(nullptr, cudaExtent{1, 1, 1}));
    last_errors();
    transcript.scene("arrays");
    cudaArray_t array = nullptr;
    const cudaChannelFormatDesc format =
        cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
    const cudaChannelFormatDesc odd =
        cudaCreateChannelDesc(31, 0, 0, 0, cudaChannelFormatKindFloat);
    CALL(cudaMallocArray(&array, &format, 64, 64, 0));
    CALL(cudaFree(array));
    last_errors();
    CALL(cudaFreeArray(array));
    CALL(cudaMallocArray(&array, &format, 0, 64, 0));
    CALL(cudaMallocArray(&array, &odd, 64, 64, 0));
    CALL(cudaMallocArray(nullptr, &format, 64, 64, 0));
    CALL(cudaMallocArray(&array, &format, std::size_t{1} << 40, 64, 0));
    last_errors();
    CALL(cudaMalloc3DArray(&array, &format, cudaExtent{16, 16, 4}, 0));
    CALL(cudaFreeArray(array));
    cudaMipmappedArray_t mipmap = nullptr;
    CALL(cudaMallocMipmappedArray(&mipmap, &format, cudaExtent{16, 16, 4}, 3, 0));
    CALL(cudaFreeMipmappedArray(mipmap));
    CALL(cudaFreeMipmappedArray(nullptr));
    last_errors();
}

void host_memory() {
    static char buffer[16384] __attribute__((aligned(4096)));
    void* p = buffer;
    transcript.scene("pinned");
    CALL(cudaMallocHost(&p, 0));
    transcript.place("it is", number(p));
    CALL(cudaMallocHost(nullptr, 16));
    CALL(cudaHostAlloc(&p, 16, 0xff00));
    CALL(cudaFreeHost(nullptr));
    CALL(cudaFreeHost(buffer));
    last_errors();
    for (const unsigned flags : {0U, 1U, 2U, 4U, 7U}) {
        p = nullptr;
        transcript.value("flags", flags);
        CALL(cudaHostAlloc(&p, 5000, flags));
        transcript.name("pinned", number(p), 5000);
        describe(behind(p, 100));
        unsigned seen = 99;
        CALL(cudaHostGetFlags(&seen, p));
        transcript.value("flags seen", seen);
        void* on_device = nullptr;
        CALL(cudaHostGetDevicePointer(&on_device, p, 0));
        transcript.place("on the device", number(on_device));
        CALL(cudaFree(p));
        CALL(cudaFreeHost(behind(p, 1)));
        CALL(cudaFreeHost(p));
        CALL(cudaFreeHost(p));
        last_errors();
    }
    transcript.scene("registered");
    CALL(cudaHostRegister(nullptr, 4096, 0));
    CALL(cudaHostRegister(buffer, 0, 0));
    CALL(cudaHostRegister(buffer, 8192, 0));
    CALL(cudaHostRegister(buffer, 8192, 0));
    transcript.name("registered", number(buffer), 8192);
    describe(buffer + 5000);
    CALL(cudaFree(buffer));
    CALL(cudaFreeHost(buffer));
    CALL(cudaHostUnregister(buffer + 4096));
    CALL(cudaHostUnregister(buffer));
    CALL(cudaHostUnregister(buffer));
    last_errors();
    transcript.scene("managed");
    CALL(cudaMallocManaged(&p, 0, cudaMemAttachGlobal));
    transcript.place("it is", number(p));
    CALL(cudaMallocManaged(&p, 4096, 0));
    CALL(cudaMallocManaged(nullptr, 4096, cudaMemAttachGlobal));
    last_errors();
    CALL(cudaMallocManaged(&p, 4096, cudaMemAttachHost));
    transcript.name("managed", number(p), 4096);
    describe(behind(p, 10));
    CALL(cudaFreeHost(p));
    CALL(cudaFree(behind(p, 10)));
    release(p);
    CALL(cudaFree(p));
    last_errors();
}

void async_memory() {
    cudaStream_t stream = nullptr;
    void* p = nullptr;
    CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CALL(cudaMallocAsync(&p, 0, stream));
    transcript.place("it is", number(p));
    CALL(cudaMallocAsync(nullptr, 16, stream));
    CALL(cudaMallocAsync(&p, std::size_t{1} << 60, stream));
    last_errors();
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, 5 * mib}) {
        CALL(cudaMallocAsync(&p, bytes, stream));
        transcript.name("async", number(p), bytes);
        describe(behind(p, bytes - 1));
        CALL(cudaMemsetAsync(p, 1, bytes, stream));
        CALL(cudaFreeAsync(behind(p, 1), stream));
        CALL(cudaFreeHost(p));
        CALL(cudaFreeAsync(p, stream));
        CALL(cudaFreeAsync(p, stream));
        CALL(cudaStreamSynchronize(stream));
        last_errors();
    }
    transcript.scene("across families and streams");
    CALL(cudaMallocAsync(&p, 1000, stream));
    CALL(cudaFree(p));
    CALL(cudaFree(p));
    last_errors();
    CALL(cudaMallocAsync(&p, 1000, nullptr));
    CALL(cudaFreeAsync(p, stream));
    p = allocate("plain", 1000);
    CALL(cudaFreeAsync(behind(p, 1), stream));
    CALL(cudaFreeAsync(p, stream));
    // Without it driver 580 answers the second free with 0, and crashes later.
    CALL(cudaStreamSynchronize(stream));
    CALL(cudaFree(p));
    last_errors();
    CALL(cudaFreeAsync(nullptr, stream));
    CALL(cudaFreeAsync(pointer(0x1234), stream));
    last_errors();
    transcript.scene("pools");
    cudaMemPool_t pool = nullptr;
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    CALL(cudaMemPoolCreate(&pool, &properties));
    CALL(cudaMallocFromPoolAsync(&p, 1000, pool, stream));
    CALL(cudaFreeAsync(p, stream));
    CALL(cudaStreamSynchronize(stream));
    CALL(cudaMemPoolTrimTo(pool, 0));
    CALL(cudaMemPoolDestroy(pool));
    CALL(cudaDeviceGetDefaultMemPool(&pool, 0));
    CALL(cudaMemPoolDestroy(pool));
    last_errors();
    CALL(cudaStreamDestroy(stream));
}

template <class Calls>
void during_capture(const char* what, cudaStreamCaptureMode mode, const Calls& calls) {
    char title[128];
    std::snprintf(title, sizeof title, "%s, mode %d", what, static_cast<int>(mode));
    transcript.scene(title);
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CALL(cudaStreamBeginCapture(stream, mode));
    calls(stream);
    CALL(cudaStreamEndCapture(stream, &graph));
    last_errors();
    if (graph != nullptr) {
        CALL(cudaGraphDestroy(graph));
    }
    CALL(cudaStreamDestroy(stream));
}

void captures() {
    void* scratch = allocate("scratch", 3 * mib);
    release(allocate("cached", 3 * mib));
    for (const cudaStreamCaptureMode mode :
         {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
          cudaStreamCaptureModeRelaxed}) {
        void* p = nullptr;
        during_capture("an allocation", mode, [&](cudaStream_t) { CALL(cudaMalloc(&p, 3 * mib)); });
        CALL(cudaFree(p));
        p = allocate("p", 1000);
        during_capture("a free", mode, [&](cudaStream_t) { CALL(cudaFree(p)); });
        CALL(cudaFree(p));
        last_errors();
        during_capture("a free of nothing", mode, [&](cudaStream_t) { CALL(cudaFree(nullptr)); });
        during_capture("an allocation of nothing", mode,
                       [&](cudaStream_t) { CALL(cudaMalloc(&p, 0)); });
        during_capture("another thread's calls", mode, [&](cudaStream_t) {
            std::thread([&] {
                void* q = nullptr;
                CALL(cudaMalloc(&q, 3 * mib));
                CALL(cudaFree(q));
                last_errors();
            }).join();
        });
        during_capture("work and stream-ordered memory", mode, [&](cudaStream_t stream) {
            void* q = nullptr;
            CALL(cudaMemsetAsync(scratch, 1, 1000, stream));
            CALL(cudaMallocAsync(&q, 1000, stream));
            CALL(cudaMemsetAsync(q, 1, 1000, stream));
            CALL(cudaFreeAsync(q, stream));
        });
        p = allocate("p", 1000);
        during_capture("questions", mode, [&](cudaStream_t) {
            describe(p);
            std::size_t bytes = 0;
            CALL(cudaMemGetInfo(&bytes, &bytes));
        });
        release(p);
    }
    release(scratch);
}

void device() {
    int count = 0;
    CALL(cudaGetDeviceCount(&count));
    CALL(cudaSetDevice(count));
    CALL(cudaSetDevice(-1));
    last_errors();
    CALL(cudaSetDevice(0));
    int can = 7;
    CALL(cudaDeviceCanAccessPeer(&can, 0, 0));
    transcript.value("it is", can);
    CALL(cudaDeviceEnablePeerAccess(0, 0));
    CALL(cudaDeviceDisablePeerAccess(0));
    last_errors();
    transcript.scene("memory of a thread that ended");
    void* p = nullptr;
    std::thread([&] { p = allocate("of a thread", 3 * mib); }).join();
    describe(behind(p, mib));
    release(p);
    transcript.scene("reset");
    p = allocate("before", 3 * mib);
    CALL(cudaDeviceReset());
    describe(p);
    CALL(cudaFree(p));
    last_errors();
    release(allocate("after", 3 * mib));
    CALL(cudaDeviceReset());
    CALL(cudaDeviceReset());
    release(allocate("after", 1000));
    CALL(cudaDeviceSynchronize());
    last_errors();
}

constexpr Group groups[] = {
    {"device", device_memory}, {"shapes", shapes},     {"host", host_memory},
    {"async", async_memory},   {"captures", captures}, {"reset", device},
};

}  // namespace

int main(int argc, char** argv) {
    return run_group(groups, argc, argv);
}
