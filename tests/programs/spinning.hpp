// A kernel that spins until the program says go: by a word of memory on a GPU, by a stream that is
// kept from completing on the simulated driver.
#pragma once

#include <csignal>
#include <cstring>

#include "tests/programs/program.hpp"
#include "tests/programs/simulated.hpp"

namespace program {

// A: while (*flag == 0) {}. B: *flag = 1.
inline constexpr char spin_kernels[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry spin(.param .u64 flag) {
    .reg .u64 %a;
    .reg .u32 %v;
    .reg .pred %p;
    ld.param.u64 %a, [flag];
again:
    ld.volatile.global.u32 %v, [%a];
    setp.eq.u32 %p, %v, 0;
    @%p bra again;
    ret;
}
.visible .entry go(.param .u64 flag) {
    .reg .u64 %a;
    ld.param.u64 %a, [flag];
    st.volatile.global.u32 [%a], 1;
    ret;
}
)";

using SimulatedGate = int(void*);

class Spin {
  public:
    explicit Spin(CUstream stream)
        : stream_(stream), close_(simulated<SimulatedGate>("simcuda_close_stream")) {
        CHECK(cuModuleLoadData(&module_, spin_kernels));
        CHECK(cuModuleGetFunction(&spin_, module_, "spin"));
        CHECK(cuModuleGetFunction(&go_, module_, "go"));
        CHECK(cuMemHostAlloc(&flag_, 64, CU_MEMHOSTALLOC_DEVICEMAP));
        std::memset(flag_, 0, 64);
    }

    void start() {
        if (close_ != nullptr) {
            close_(stream_);
        }
        launch(spin_, stream_);
    }

    void go(CUstream stream) {
        launch(go_, stream);
        if (close_ != nullptr) {
            CHECK(cuLaunchHostFunc(
                stream,
                [](void* closed) { simulated<SimulatedGate>("simcuda_open_stream")(closed); },
                stream_));
        }
    }

    /// The host says go, without work on any stream.
    void go() {
        *static_cast<volatile int*>(flag_) = 1;
        if (close_ != nullptr) {
            simulated<SimulatedGate>("simcuda_open_stream")(stream_);
        }
    }

    void done() {
        CHECK(cuMemFreeHost(flag_));
        CHECK(cuModuleUnload(module_));
    }

  private:
    void launch(CUfunction kernel, CUstream stream) {
        void* arguments[] = {&flag_};
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
    }

    CUstream stream_;
    SimulatedGate* close_;
    CUmodule module_ = nullptr;
    CUfunction spin_ = nullptr;
    CUfunction go_ = nullptr;
    void* flag_ = nullptr;
};

inline void hung(int) {
    SAY("the program hangs\n");
    _exit(5);
}

/// Ends the program with code 5 after so many seconds; 0: no longer.
inline void must_end_within(unsigned seconds) {
    (void)std::signal(SIGALRM, hung);
    ::alarm(seconds);
}

}  // namespace program
