// Memory that was freed with its work still running and is used again, by one stream and by others.
// Runs on the simulated driver only: there time stands still until the program moves it, and two
// accesses to one address by different owners that nothing orders end the process with code 86.
//
//   one_stream SCENARIO      see `scenarios` below
//   one_stream threads SEED  four threads: each allocates, has a kernel use the memory, frees, and
//                            does so again; all on one stream at first, at some time one after the
//                            other on streams of their own
//
// Prints, for each block that was freed, whether the next allocation got its memory; then how often
// the driver was asked about fences and told that the device shall wait for one.
#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/programs/simulated.hpp"

namespace {

using program::allocate;
using program::control;
using program::release;

constexpr std::uint64_t millisecond = 1'000'000;
constexpr std::size_t bytes = 2 << 20;

std::atomic<std::uint64_t> owners{0};

void kernel(CUstream stream, CUdeviceptr address, std::uint64_t owner, std::uint64_t duration) {
    static auto* launch =
        control<int(void*, std::uint64_t, const simcuda_access*, std::size_t)>("simcuda_kernel");
    const simcuda_access write = {address, bytes, 1, owner};
    if (launch(stream, duration, &write, 1) != 0) {
        SAY("a kernel could not be launched\n");
        _exit(3);
    }
}

std::uint64_t own(CUdeviceptr address) {
    static auto* set = control<void(std::uint64_t, std::uint64_t, std::uint64_t)>("simcuda_owner");
    const std::uint64_t owner = ++owners;
    set(address, bytes, owner);
    return owner;
}

CUstream new_stream() {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/// Work that runs on `stream` uses memory, which is freed meanwhile.
CUdeviceptr leave_behind(CUstream stream) {
    const CUdeviceptr address = allocate(bytes);
    kernel(stream, address, own(address), millisecond);
    release(address);
    return address;
}

/// The next allocation, whose memory is somebody else's from now on.
CUdeviceptr get_again(CUdeviceptr before) {
    const CUdeviceptr address = allocate(bytes);
    SAY("same address: %s\n", address == before ? "yes" : "no");
    own(address);
    return address;
}

void use(CUstream stream, CUdeviceptr address) {
    kernel(stream, address, owners, 0);
}

/// Old work and new on these streams.
void reuse(CUstream before, CUstream after) {
    use(after, get_again(leave_behind(before)));
}

void launch_with_config(CUstream stream) {
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    static const char code[] =
        ".version 7.0\n.target sm_52\n.address_size 64\n"
        ".visible .entry nothing() { ret; }\n";
    CHECK(cuModuleLoadData(&module, code));
    CHECK(cuModuleGetFunction(&function, module, "nothing"));
    CHECK(cuLaunchKernelEx(&config, function, nullptr, nullptr));
}

CUgraphExec graph_that_sets(CUdeviceptr address) {
    CUcontext context = nullptr;
    CHECK(cuCtxGetCurrent(&context));
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec executable = nullptr;
    CUDA_MEMSET_NODE_PARAMS set{};
    set.dst = address;
    set.elementSize = 4;
    set.width = bytes / 4;
    set.height = 1;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &set, context));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    return executable;
}

void one() {
    const CUstream stream = new_stream();
    for (int round = 0; round < 3; ++round) {
        reuse(stream, stream);
    }
}

void second() {
    const CUstream before = new_stream();
    const CUstream after = new_stream();
    reuse(before, after);
    reuse(before, after);  // nothing is known any more
}

void names_of_the_legacy_stream() {
    const CUdeviceptr address = get_again(leave_behind(nullptr));
    use(CU_STREAM_LEGACY, address);
    CHECK(cuMemsetD8(address, 1, bytes));
    std::vector<char> host(bytes);
    CHECK(cuMemcpyDtoH(host.data(), address, bytes));
    reuse(CU_STREAM_LEGACY, nullptr);
}

void legacy_after_another() {
    reuse(new_stream(), nullptr);
}

void copy_that_waits() {
    const std::vector<char> host(bytes);
    CHECK(cuMemcpyHtoD(get_again(leave_behind(new_stream())), host.data(), bytes));
}

void launch_configuration() {
    const CUstream stream = new_stream();
    const CUstream other = new_stream();
    const CUdeviceptr address = get_again(leave_behind(stream));
    launch_with_config(stream);
    use(stream, get_again(leave_behind(stream)));
    launch_with_config(other);
    use(other, address);
}

void early_launch() {
    auto* launch = control<int(void*, std::uint64_t, const simcuda_access*, std::size_t)>(
        "simcuda_early_kernel");
    const CUstream stream = new_stream();
    for (int round = 0; round < 2; ++round) {
        const simcuda_access write = {get_again(leave_behind(stream)), bytes, 1, owners};
        launch(stream, 0, &write, 1);
    }
}

void graph_in_the_stream() {
    const CUstream stream = new_stream();
    CHECK(cuGraphLaunch(graph_that_sets(get_again(leave_behind(stream))), stream));
    reuse(stream, stream);
}

void graph_in_another() {
    const CUdeviceptr address = get_again(leave_behind(new_stream()));
    CHECK(cuGraphLaunch(graph_that_sets(address), new_stream()));
}

void destroyed() {
    const CUstream before = new_stream();
    const CUdeviceptr address = leave_behind(before);
    CHECK(cuStreamDestroy(before));
    const CUstream after = new_stream();
    use(after, get_again(address));
}

void thread_streams() {
    CUcontext context = nullptr;
    CHECK(cuCtxGetCurrent(&context));
    std::thread([&] {
        CHECK(cuCtxSetCurrent(context));
        reuse(CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD);
        const CUdeviceptr address = leave_behind(CU_STREAM_PER_THREAD);
        std::thread([&] {
            CHECK(cuCtxSetCurrent(context));
            use(CU_STREAM_PER_THREAD, get_again(address));
        }).join();
    }).join();
}

void capture() {
    const CUstream stream = new_stream();
    const CUstream captured = new_stream();
    const CUdeviceptr address = get_again(leave_behind(stream));
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CHECK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    use(captured, address);
    CHECK(cuStreamEndCapture(captured, &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, captured));
}

void unknown_function() {
    const CUdeviceptr address = get_again(leave_behind(new_stream()));
    control<int(void)>("cuSimcudaUnlisted");
    use(new_stream(), address);
}

void second_context() {
    const CUdeviceptr address = get_again(leave_behind(new_stream()));
    CUcontext other = nullptr;
    CHECK(program::create_context(&other));
    CHECK(cuMemsetD8Async(address, 1, bytes, new_stream()));
}

void context_again() {
    const CUstream stream = new_stream();
    reuse(stream, stream);
    CHECK(cuDevicePrimaryCtxReset(0));
    program::use_device();
    const CUstream other = new_stream();
    reuse(other, other);
}

void threads(unsigned seed) {
    CUcontext context = nullptr;
    CHECK(cuCtxGetCurrent(&context));
    const CUstream shared = new_stream();
    std::vector<std::thread> all;
    for (unsigned i = 0; i < 4; ++i) {
        all.emplace_back([=] {
            CHECK(cuCtxSetCurrent(context));
            auto* advance = control<void(std::uint64_t)>("simcuda_advance");
            std::mt19937 random(seed * 4 + i);
            const CUstream mine = new_stream();
            const std::uint64_t leaves_at = 20 + random() % 60;
            for (unsigned round = 0; round < 100; ++round) {
                const CUdeviceptr address = allocate(bytes);
                kernel(round < leaves_at ? shared : mine, address, own(address), random() % 1000);
                release(address);
                if (random() % 4 == 0) {
                    advance(random() % 1000);
                }
            }
        });
    }
    for (std::thread& thread : all) {
        thread.join();
    }
    CHECK(cuCtxSynchronize());
}

struct Scenario {
    const char* name;
    void (*run)();
};

constexpr Scenario scenarios[] = {
    {"one", one},
    {"second", second},
    {"legacy", names_of_the_legacy_stream},
    {"legacy_after_another", legacy_after_another},
    {"copy", copy_that_waits},
    {"config", launch_configuration},
    {"early", early_launch},
    {"graph", graph_in_the_stream},
    {"graph_in_another", graph_in_another},
    {"destroyed", destroyed},
    {"thread_streams", thread_streams},
    {"capture", capture},
    {"unknown_function", unknown_function},
    {"second_context", second_context},
    {"context_again", context_again},
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        return 2;
    }
    program::use_device();
    if (argc == 3 && std::strcmp(argv[1], "threads") == 0) {
        threads(static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)));
        return 0;
    }
    for (const Scenario& scenario : scenarios) {
        if (std::strcmp(argv[1], scenario.name) == 0) {
            scenario.run();
            CHECK(cuCtxSynchronize());
            auto* calls = control<std::uint64_t(const char*)>("simcuda_calls");
            SAY("asked: %s, device waits: %s\n", calls("cuEventQuery") != 0 ? "yes" : "no",
                calls("cuCtxWaitEvent") != 0 ? "yes" : "no");
            return 0;
        }
    }
    return 2;
}
