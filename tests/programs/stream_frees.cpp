// cuMemFreeAsync of cuMemAlloc's memory, beside a kernel on stream A that spins until it is told to
// go. Plain CUDA waits for nothing and puts no stream behind another, so the program ends.
//
//   stream_frees answer   the free is in A's order, B's first work comes after it, and lets A go
//   stream_frees beside   the free is in B's order
//   stream_frees churn    300 allocations of 8 MiB, used and freed on B: memory in use stays
//   bounded
//
// Ends with code 5 when it hangs.
//
// Recorded: 2 device allocations of 3 MiB ("churn": 301 in all), all freed; 64 bytes pinned.
#include <cuda.h>

#include <cstring>

#include "spinning.hpp"

using namespace program;

namespace {

constexpr std::size_t mib = 1 << 20;

std::size_t used() {
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    CHECK(cuMemGetInfo(&free_bytes, &total));
    return total - free_bytes;
}

}  // namespace

int main(int argc, char** argv) {
    const char* mode = argc == 2 ? argv[1] : "";
    use_device();
    CUstream a = nullptr;
    CUstream b = nullptr;
    CHECK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    Spin spin(a);
    const CUdeviceptr p = allocate(3 * mib);
    must_end_within(20);
    if (std::strcmp(mode, "answer") == 0 || std::strcmp(mode, "beside") == 0) {
        const CUdeviceptr q = allocate(3 * mib);
        spin.start();
        CHECK(cuMemFreeAsync(p, std::strcmp(mode, "answer") == 0 ? a : b));
        CHECK(cuMemsetD8Async(q, 1, 3 * mib, b));
        spin.go(b);
        CHECK(cuStreamSynchronize(b));
        CHECK(cuCtxSynchronize());
        release(q);
    } else if (std::strcmp(mode, "churn") == 0) {
        CHECK(cuMemsetD8Async(p, 1, 3 * mib, b));
        spin.start();
        const std::size_t before = used();
        for (int i = 0; i < 300; ++i) {
            const CUdeviceptr each = allocate(8 * mib);
            CHECK(cuMemsetD8Async(each, 1, 8 * mib, b));
            CHECK(cuMemFreeAsync(each, b));
            CHECK(cuStreamSynchronize(b));
        }
        SAY("bounded: %d\n", used() < before + 200 * mib);
        spin.go();
        CHECK(cuCtxSynchronize());
        release(p);
    } else {
        return 2;
    }
    SAY("done\n");
    must_end_within(0);
    spin.done();
    return 0;
}
