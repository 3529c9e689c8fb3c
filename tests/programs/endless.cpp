// A kernel that never ends, launched at the worst moment: when memory that the program has freed is
// being given back to the driver, which must not wait for it. Other threads go on allocating, and
// exit() ends the process.
//
//   endless MILLISECONDS   how long to wait for somebody to give memory back; then the kernel is
//                          launched anyway; says on standard error which
//
// On the simulated driver, whose streams can be kept from completing and which tells of calls. Ends
// with code 5 where anything hangs.
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "spinning.hpp"
#include "tests/programs/simulated.hpp"
#include "tests/simcuda/tool.h"

using namespace program;

namespace {

constexpr std::size_t large = 30 << 20;

pid_t main_thread;
std::atomic<Spin*> kernel{nullptr};  // until it is launched

void launch() {
    if (Spin* spin = kernel.exchange(nullptr)) {
        spin->start();
    }
}

bool gives_back(const char* symbol) {
    return std::strncmp(symbol, "cuMemFree", 9) == 0 || std::strcmp(symbol, "cuMemUnmap") == 0;
}

/// Before the driver takes the memory.
void driver_call(const char* symbol, int entering) {
    if (entering != 0 && ::gettid() != main_thread && gives_back(symbol)) {
        launch();
    }
}
void ignored(const char*, int) {}
void ignored_memory(simcuda_memory_kind, std::uint64_t, std::uint64_t, int) {}
void ignored_work(simcuda_work_kind, const char*, std::uint64_t, int) {}
const simcuda_tool tool = {driver_call, ignored, ignored_memory, ignored_work};

void allocate_some(CUcontext context) {
    CHECK(cuCtxSetCurrent(context));
    for (std::size_t i = 0; i < 200; ++i) {
        allocate(1000 + i * 5000);  // kept: a free would wait for the kernel
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        return 2;
    }
    must_end_within(20);
    main_thread = ::gettid();
    const CUcontext context = use_device();
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    Spin spin(stream);
    std::array<CUdeviceptr, 8> blocks{};
    for (CUdeviceptr& block : blocks) {
        block = allocate(large);
    }
    for (const CUdeviceptr block : blocks) {
        release(block);
    }
    kernel = &spin;
    control<void(const simcuda_tool*)>("simcuda_set_tool")(&tool);
    for (int waited = 0; waited < std::atoi(argv[1]) && kernel != nullptr; ++waited) {
        ::usleep(1000);
    }
    const bool beside = kernel == nullptr;
    launch();
    std::array<std::thread, 3> threads;
    for (std::thread& thread : threads) {
        thread = std::thread(allocate_some, context);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    SAY("allocated beside the kernel\n");
    ::dprintf(STDERR_FILENO, "launched before %s\n", beside ? "memory was given back" : "nothing");
    std::exit(0);  // the alarm stays: the end must come, too
}
