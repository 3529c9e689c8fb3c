// Memory of another process on another device is opened, and the current context is given access to
// that device. Its kernels then use memory that this process has on that device, and that is freed
// and had again while they run.
//
//   ipc_peers stream      freed in the order of the stream in which the kernel runs
//   ipc_peers unordered   freed at once: with plain CUDA blocks are overwritten, with memlab none
//   ipc_peers late        as unordered; the other device's context begins after the opening only
//   ipc_peers opened      as late, for a driver that gives the access with the opening, as is
//                         documented (SIMCUDA_IPC_ENABLES_PEERS=1; not CUDA 13.0's)
//
// Prints OK, or BAD and how many rounds went wrong (exit code 1), and what enabling the access once
// more and disabling it answers then.
//
// Recorded: device: 2 contexts with 2 blocks, 3 streams by 8 rounds with 2 blocks; 1 import.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/programs/foreign_work.hpp"
#include "tests/programs/resolved_ipc.hpp"

using namespace program;

namespace {

constexpr std::size_t exported_bytes = std::size_t{2} << 20;

// Fills a block after 20 ms.
constexpr char fill_kernel[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry fill(.param .u64 begin, .param .u64 bytes) {
    .reg .u64 %at, %end, %bytes, %from, %now;
    .reg .u32 %thread, %step;
    .reg .u64 %thread64, %step64;
    .reg .u16 %value;
    .reg .pred %p;
    ld.param.u64 %at, [begin];
    ld.param.u64 %bytes, [bytes];
    add.u64 %end, %at, %bytes;
    mov.u64 %from, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %from;
    setp.lt.u64 %p, %now, 20000000;
    @%p bra again;
    mov.u32 %thread, %tid.x;
    mov.u32 %step, %ntid.x;
    cvt.u64.u32 %thread64, %thread;
    cvt.u64.u32 %step64, %step;
    add.u64 %at, %at, %thread64;
    mov.u16 %value, 238;
next:
    setp.ge.u64 %p, %at, %end;
    @%p bra done;
    st.global.u8 [%at], %value;
    add.u64 %at, %at, %step64;
    bra next;
done:
    ret;
}
)";

class Filler {
  public:
    /// In the current context.
    Filler() : simulated_(if_simulated<decltype(simcuda_kernel)>("simcuda_kernel")) {
        CHECK(cuModuleLoadData(&module_, fill_kernel));
        CHECK(cuModuleGetFunction(&function_, module_, "fill"));
    }

    void fill(CUdeviceptr block, CUstream stream) const {
        if (simulated_ != nullptr) {
            const simcuda_access written = {block, foreign_bytes, 1, 0};
            simulated_(stream, 1'000'000, &written, 1);
            return;
        }
        std::size_t bytes = foreign_bytes;
        void* arguments[] = {&block, &bytes};
        CHECK(cuLaunchKernel(function_, 1, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr));
    }

  private:
    decltype(simcuda_kernel)* simulated_;
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
};

CUcontext primary_of(CUdevice device) {
    CUcontext context = nullptr;
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    return context;
}

// Lets its memory be opened until standard input ends.
int export_memory() {
    CHECK(cuInit(0));
    primary_of(1);
    const CUdeviceptr memory = allocate(exported_bytes);
    CUipcMemHandle handle{};
    char end = 0;
    CHECK(cuIpcGetMemHandle(&handle, memory));
    const bool told = write(STDOUT_FILENO, &handle, sizeof handle) == sizeof handle;
    const bool ended = read(STDIN_FILENO, &end, 1) == 0;
    release(memory);
    return told && ended ? 0 : 3;
}

struct Exporter {
    pid_t process = 0;
    int to = -1;
    int from = -1;

    Exporter() {
        int down[2];
        int up[2];
        if (pipe(down) != 0 || pipe(up) != 0) {
            _exit(3);
        }
        process = fork();
        if (process == 0) {
            dup2(down[0], STDIN_FILENO);
            dup2(up[1], STDOUT_FILENO);
            for (const int each : {down[0], down[1], up[0], up[1]}) {
                close(each);
            }
            unsetenv("LD_PRELOAD");  // a process of plain CUDA's: who exports does not matter
            execl("/proc/self/exe", "ipc_peers", "export", static_cast<char*>(nullptr));
            _exit(3);
        }
        close(down[0]);
        close(up[1]);
        to = down[1];
        from = up[0];
    }
    bool end() const {
        int status = 0;
        close(to);
        close(from);
        return waitpid(process, &status, 0) == process && status == 0;
    }
};

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc == 2 ? argv[1] : "";
    if (mode == "export") {
        return export_memory();
    }
    if (mode != "stream" && mode != "unordered" && mode != "late" && mode != "opened") {
        return 2;
    }
    const Exporter exporter;
    CUipcMemHandle handle{};
    if (read(exporter.from, &handle, sizeof handle) != sizeof handle) {
        SAY("no handle\n");
        return 3;
    }
    CHECK(cuInit(0));
    const CUcontext early = mode == "late" || mode == "opened" ? nullptr : primary_of(1);
    const Worker other(primary_of(0));
    const Filler filler;
    CUdeviceptr opened = 0;
    CHECK(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    const Worker home(early != nullptr ? early : primary_of(1));
    if (mode != "opened") {
        other.use();
        const CUresult enabled = cuCtxEnablePeerAccess(home.context, 0);
        CHECK(enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : enabled);
    }

    const Free how = mode == "stream" ? Free::in_stream : Free::at_once;
    int wrong = 0;
    int rounds = 0;
    for (const CUstream stream : {other.stream, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        for (int round = 0; round < 8; ++round, ++rounds) {
            const bool right = reuse(home, other, stream, how,
                                     [&](CUdeviceptr block) { filler.fill(block, stream); });
            wrong += right ? 0 : 1;
        }
    }
    SAY("%s: %d of %d blocks overwritten\n", wrong == 0 ? "OK" : "BAD", wrong, rounds);
    other.use();
    SAY("enable: %d\n", static_cast<int>(cuCtxEnablePeerAccess(home.context, 0)));
    SAY("disable: %d\n", static_cast<int>(cuCtxDisablePeerAccess(home.context)));
    CHECK(cuIpcCloseMemHandle(opened));
    other.done();
    home.done();
    SAY("the exporter is well: %d\n", exporter.end() ? 1 : 0);
    return wrong == 0 ? 0 : 1;
}
