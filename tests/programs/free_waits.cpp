// A free that has to wait on the host for running work holds up nobody else, and is not passed by.
// Runs on the simulated driver only: it needs a driver without context events, events that cannot
// be made, or a callback in a call of the driver.
//
//   free_waits allocate   while one thread's cuMemFree waits for a kernel, another allocates
//   free_waits capture    ... another captures, and only then lets the kernel end
//   free_waits events     cuMemFree of most of the GPU's memory after cuEventCreate failed
//   free_waits launch     cuMemFree in a callback at the end of the driver's cuLaunchKernel
//   free_waits jump       a signal handler jumps out of a cuMemFree that waits for a kernel; then
//                         the thread goes on, deeper in its stack, and another one too
//
// Ends with code 5 when it hangs.
#include <cuda.h>
#include <setjmp.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <thread>

#include "spinning.hpp"
#include "tests/programs/simulated.hpp"
#include "tests/simcuda/tool.h"

using namespace program;

namespace {

constexpr std::size_t mib = 1 << 20;

void beside(bool capture) {
    const CUcontext context = use_device();
    CUstream a = nullptr;
    CHECK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr p = allocate(3 * mib);
    Spin spin(a);
    spin.start();
    auto* calls = control<std::uint64_t(const char*)>("simcuda_calls");
    const auto waits = [calls] {
        return calls("cuMemFree") + calls("cuCtxSynchronize") + calls("cuEventSynchronize");
    };
    const std::uint64_t before = waits();
    std::atomic<bool> freed_at_once{false};
    std::thread freeing([&] {
        CHECK(cuCtxSetCurrent(context));
        CHECK(cuMemFree(p));
        freed_at_once = true;
    });
    while (waits() == before && !freed_at_once) {  // until that thread is in the driver
        std::this_thread::yield();
    }
    if (capture) {
        CUstream s = nullptr;
        CUgraph graph = nullptr;
        CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK(cuStreamEndCapture(s, &graph));
        CHECK(cuGraphDestroy(graph));
    } else {
        (void)allocate(3 * mib);
    }
    spin.go();
    freeing.join();
}

void without_events() {
    use_device();
    const std::size_t most = most_of_the_device();
    CUdeviceptr p = allocate(most);
    for (int round = 0; round < 3; ++round) {
        CHECK(cuMemsetD8(p, 1, mib));
        control<int(const char*, std::uint64_t, int)>("simcuda_fail")("cuEventCreate", 1,
                                                                      CUDA_ERROR_OUT_OF_MEMORY);
        release(p);
        p = allocate(most);
    }
    release(p);
}

CUdeviceptr in_callback = 0;
CUstream launched = nullptr;
bool freed = false;

sigjmp_buf before_the_free;
bool waiting = false;

void driver_call(const char* symbol, int entering) {
    // The call in which a cuMemFree waits: memlab's, or the program's own.
    if (entering != 0 && waiting &&
        (std::strcmp(symbol, "cuEventSynchronize") == 0 ||
         std::strcmp(symbol, "cuMemFree_v2") == 0)) {
        waiting = false;
        ::raise(SIGUSR1);
    }
    if (entering == 0 && !freed && in_callback != 0 && std::strcmp(symbol, "cuLaunchKernel") == 0) {
        freed = true;
        std::thread opener([] { control<int(void*)>("simcuda_open_stream")(launched); });
        release(in_callback);
        SAY("the kernel was done: %d\n", control<int(void*)>("simcuda_stream_idle")(launched));
        opener.join();
    }
}
void ignored(const char*, int) {}
void ignored_memory(simcuda_memory_kind, std::uint64_t, std::uint64_t, int) {}
void ignored_work(simcuda_work_kind, const char*, std::uint64_t, int) {}
const simcuda_tool tool = {driver_call, ignored, ignored_memory, ignored_work};

void inside_a_launch() {
    use_device();
    CHECK(cuStreamCreate(&launched, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr p = allocate(3 * mib);
    Spin spin(launched);
    control<void(const simcuda_tool*)>("simcuda_set_tool")(&tool);
    in_callback = p;
    spin.start();
    CHECK(cuCtxSynchronize());
}

[[gnu::noinline]] CUdeviceptr allocate_deeper(std::size_t bytes) {
    volatile char room[4096] = {};
    return allocate(bytes) + static_cast<CUdeviceptr>(room[100]);
}

void jump_out() {
    const CUcontext context = use_device();
    const std::size_t most = most_of_the_device();
    CUstream a = nullptr;
    CHECK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    static CUdeviceptr p;
    p = allocate(most);
    Spin spin(a);
    spin.start();
    control<void(const simcuda_tool*)>("simcuda_set_tool")(&tool);
    std::signal(SIGUSR1, [](int) { siglongjmp(before_the_free, 1); });
    if (sigsetjmp(before_the_free, 1) == 0) {
        waiting = true;
        release(p);
        SAY("it did not wait\n");
    }
    spin.go();
    CHECK(cuStreamSynchronize(a));
    release(allocate_deeper(most));
    std::thread([&] {
        CHECK(cuCtxSetCurrent(context));
        release(allocate(most));
    }).join();
}

}  // namespace

int main(int argc, char** argv) {
    const char* mode = argc == 2 ? argv[1] : "";
    must_end_within(20);
    if (std::strcmp(mode, "allocate") == 0 || std::strcmp(mode, "capture") == 0) {
        beside(std::strcmp(mode, "capture") == 0);
    } else if (std::strcmp(mode, "events") == 0) {
        without_events();
    } else if (std::strcmp(mode, "launch") == 0) {
        inside_a_launch();
    } else if (std::strcmp(mode, "jump") == 0) {
        jump_out();
    } else {
        return 2;
    }
    SAY("done\n");
    return 0;
}
