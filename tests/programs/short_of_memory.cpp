// The host is out of memory in the middle of a call: the device is not, and the program gets the
// answers of plain CUDA.
//
//   short_of_memory      forks a child for each number of allocations of memlab's that succeed
//                        before one fails, and one before all that follow fail in the same call
//
// Prints each answer of each call that is not as it should be, and "done". With a library whose
// allocations can be made to fail (tests/support/failing_heap.cpp) on standard error in how many
// runs one did.
#include <dlfcn.h>
#include <sys/wait.h>

#include <array>
#include <cstring>

#include "interpose/include/memlab/memlab.h"
#include "tests/programs/program.hpp"

using namespace program;

namespace {

using FailAllocations = long(long, long);
FailAllocations* fail_allocations = nullptr;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr long all = 1'000'000;

/// Makes calls of which the nth allocation of memlab's fails.
struct Short {
    long succeed;
    long fail;
    bool failed = false;
    bool wrong = false;

    /// `call`'s answer has to be `expected`.
    template <class Call>
    void answer(const char* name, CUresult expected, const Call& call) {
        if (fail_allocations != nullptr) {
            fail_allocations(succeed, fail);
        }
        const CUresult result = call();
        if (fail_allocations != nullptr) {
            failed = fail_allocations(0, 0) != fail || failed;
        }
        if (result != expected) {
            wrong = true;
            SAY("%s: %d instead of %d (%ld succeed, %ld fail)\n", name, static_cast<int>(result),
                static_cast<int>(expected), succeed, fail);
        }
    }
};

#define ANSWERS(expected, call) host.answer(#call, expected, [&] { return call; })
#define SUCCEEDS(call) ANSWERS(CUDA_SUCCESS, call)

void use_memory(Short& host) {
    std::array<CUdeviceptr, 6> blocks{};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        SUCCEEDS(cuMemAlloc(&blocks[i], mib << i));
    }
    SUCCEEDS(cuMemsetD8(blocks[1], 7, mib));
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    SUCCEEDS(cuMemGetAddressRange(&base, &bytes, blocks[2] + 100));
    int ordinal = -1;
    SUCCEEDS(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, blocks[3]));
    for (const CUdeviceptr block : blocks) {
        SUCCEEDS(cuMemFree(block));
    }
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemFree(blocks[0]));
    CUdeviceptr pitched = 0;
    std::size_t pitch = 0;
    SUCCEEDS(cuMemAllocPitch(&pitched, &pitch, 1000, 100, 4));
    SUCCEEDS(cuMemFree(pitched));
    CUdeviceptr managed = 0;
    SUCCEEDS(cuMemAllocManaged(&managed, mib, CU_MEM_ATTACH_GLOBAL));
    SUCCEEDS(cuMemFree(managed));
    void* pinned = nullptr;
    SUCCEEDS(cuMemAllocHost(&pinned, mib));
    SUCCEEDS(cuMemFreeHost(pinned));
    std::size_t free_bytes = 0;
    SUCCEEDS(cuMemGetInfo(&free_bytes, &bytes));
    // More than is free beside what the pool has.
    const std::size_t most = most_of_the_device();
    for (CUdeviceptr& block : blocks) {
        SUCCEEDS(cuMemAlloc(&block, most));
        SUCCEEDS(cuMemFree(block));
    }
}

void use_streams(Short& host) {
    CUstream stream = nullptr;
    SUCCEEDS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr ordered = 0;
    SUCCEEDS(cuMemAllocAsync(&ordered, mib, stream));
    SUCCEEDS(cuMemFreeAsync(ordered, stream));
    CUdeviceptr block = 0;
    SUCCEEDS(cuMemAlloc(&block, mib));
    SUCCEEDS(cuMemsetD8Async(block, 1, mib, stream));
    SUCCEEDS(cuMemFreeAsync(block, stream));
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    SUCCEEDS(cuMemAlloc(&block, mib));
    SUCCEEDS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SUCCEEDS(cuMemsetD8Async(block, 1, mib, stream));
    CUdeviceptr freed = 0;
    SUCCEEDS(cuMemAlloc(&freed, mib));
    SUCCEEDS(cuMemFree(freed));
    SUCCEEDS(cuStreamEndCapture(stream, &graph));
    SUCCEEDS(cuGraphInstantiateWithFlags(&executable, graph, 0));
    SUCCEEDS(cuGraphLaunch(executable, stream));
    SUCCEEDS(cuStreamSynchronize(stream));
    SUCCEEDS(cuGraphExecDestroy(executable));
    SUCCEEDS(cuGraphDestroy(graph));
    SUCCEEDS(cuMemFree(block));
    CUevent event = nullptr;
    SUCCEEDS(cuEventCreate(&event, 0));
    SUCCEEDS(cuEventRecord(event, stream));
    SUCCEEDS(cuEventSynchronize(event));
    SUCCEEDS(cuStreamDestroy(stream));
}

void use_contexts(Short& host) {
    CUcontext primary = nullptr;
    SUCCEEDS(cuDevicePrimaryCtxRetain(&primary, 0));
    SUCCEEDS(cuDevicePrimaryCtxRelease(0));
    CUcontext context = nullptr;
    SUCCEEDS(create_context(&context));
    CUdeviceptr block = 0;
    SUCCEEDS(cuMemAlloc(&block, 3 * mib));
    SUCCEEDS(cuCtxDestroy(context));
    SUCCEEDS(cuMemAlloc(&block, 3 * mib));
    SUCCEEDS(cuMemFree(block));
}

/// Without host memory there are no figures, and nothing else changes.
void use_intervals(Short& host) {
    uint64_t interval = 0;
    const auto begin = [&] {
        interval = memlab_interval_begin();
        return CUDA_SUCCESS;
    };
    host.answer("memlab_interval_begin", CUDA_SUCCESS, begin);
    CUdeviceptr block = 0;
    SUCCEEDS(cuMemAlloc(&block, mib));
    SUCCEEDS(cuMemFree(block));
    static std::array<char, 1 << 16> json;
    const auto end = [&] {
        const std::size_t length = memlab_interval_end(interval, 9, json.data(), json.size());
        return length == 0 || length == std::strlen(json.data()) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_UNKNOWN;
    };
    host.answer("memlab_interval_end", CUDA_SUCCESS, end);
}

/// Whether an allocation failed; ends with 1 if an answer was wrong.
int child(long succeed, long fail) {
    Short host{succeed, fail};
    use_device();
    use_memory(host);
    use_streams(host);
    use_contexts(host);
    use_intervals(host);
    return host.wrong ? 1 : host.failed ? 9 : 0;
}

}  // namespace

int main() {
    fail_allocations =
        reinterpret_cast<FailAllocations*>(dlsym(RTLD_DEFAULT, "memlab_api_fail_allocations"));
    int failures = 0;
    for (const long fail : {1L, all}) {
        bool failed = true;
        for (long succeed = 0; failed; ++succeed) {
            const pid_t process = ::fork();
            if (process == 0) {
                ::_exit(child(succeed, fail));
            }
            int status = 0;
            ::waitpid(process, &status, 0);
            if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 9)) {
                SAY("%ld succeed, %ld fail: ended with %d\n", succeed, fail, status);
            }
            failed = WIFEXITED(status) && WEXITSTATUS(status) == 9;
            failures += failed ? 1 : 0;
        }
    }
    ::dprintf(STDERR_FILENO, "%d\n", failures);
    SAY("done\n");
    return 0;
}
