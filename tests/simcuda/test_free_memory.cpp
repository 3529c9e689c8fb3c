// What cuMemGetInfo counts as free, and when, as seen on GPUs (tests/conformance/plain_memory); and
// what fresh memory holds.
#include <cstddef>
#include <vector>

#include "tests/catch.hpp"
#include "tests/simcuda/driver_fixture.hpp"

using memlab::simcuda::DriverFixture;

namespace {

constexpr std::size_t page = std::size_t{2} << 20;

long free_pages() {
    std::size_t free = 0;
    std::size_t total = 0;
    REQUIRE(cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
    REQUIRE(free % page == 0);
    return static_cast<long>(free / page);
}

bool is_zero(CUdeviceptr address, std::size_t bytes) {
    std::vector<unsigned char> there(bytes, 0xff);
    REQUIRE(cuMemcpyDtoH(there.data(), address, bytes) == CUDA_SUCCESS);
    return there == std::vector<unsigned char>(bytes);
}

CUdeviceptr pool_memory(std::size_t bytes, CUstream stream) {
    CUdeviceptr made = 0;
    REQUIRE(cuMemAllocAsync(&made, bytes, stream) == CUDA_SUCCESS);
    return made;
}

}  // namespace

TEST_CASE_METHOD(DriverFixture, "freed in a stream's order: free with its synchronization",
                 "[simcuda]") {
    CUstream busy = stream();
    const long before = free_pages();
    const CUdeviceptr plain = memory(3 * page);
    const CUdeviceptr pooled = pool_memory(5 * page, busy);
    simcuda_close_stream(busy);
    REQUIRE(cuMemFreeAsync(plain, busy) == CUDA_SUCCESS);
    REQUIRE(cuMemFreeAsync(pooled, busy) == CUDA_SUCCESS);
    CHECK(free_pages() == before - 8);
    simcuda_open_stream(busy);
    REQUIRE(cuStreamSynchronize(busy) == CUDA_SUCCESS);
    CHECK(free_pages() == before);
}

TEST_CASE_METHOD(DriverFixture, "cuMemFree gives back at once, of a pool too", "[simcuda]") {
    CUstream one = stream();
    const long before = free_pages();
    const CUdeviceptr pooled = pool_memory(5 * page, one);
    REQUIRE(cuMemFree(pooled) == CUDA_SUCCESS);
    CHECK(free_pages() == before);
}

TEST_CASE_METHOD(DriverFixture, "cuMemFree in a relaxed capture gives back at once", "[simcuda]") {
    CUstream captured = stream();
    const long before = free_pages();
    const CUdeviceptr plain = memory(3 * page);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    REQUIRE(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    CHECK(cuMemFree(plain) == CUDA_SUCCESS);
    CHECK(free_pages() == before);
    CUgraph graph = nullptr;
    REQUIRE(cuStreamEndCapture(captured, &graph) == CUDA_SUCCESS);
    REQUIRE(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
}

TEST_CASE_METHOD(DriverFixture, "what a pool keeps is there for a request that needs it",
                 "[simcuda]") {
    CUstream one = stream();
    CUmemoryPool pool = nullptr;
    cuuint64_t keep = ~cuuint64_t{0};
    REQUIRE(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep) == CUDA_SUCCESS);
    const auto most = static_cast<std::size_t>(free_pages()) / 3 * 2 * page;
    REQUIRE(cuMemFreeAsync(pool_memory(most, one), one) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(one) == CUDA_SUCCESS);
    CHECK(free_pages() * page < most);
    CHECK(cuMemFree(memory(most)) == CUDA_SUCCESS);
    keep = 0;
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep) == CUDA_SUCCESS);
}

TEST_CASE_METHOD(DriverFixture, "contexts share no page", "[simcuda]") {
    const long before = free_pages();
    const CUdeviceptr first = memory(512);
    CHECK(free_pages() == before - 1);
    CUcontext second = nullptr;
#if CUDA_VERSION >= 13000
    REQUIRE(cuCtxCreate(&second, nullptr, 0, 0) == CUDA_SUCCESS);
#else
    REQUIRE(cuCtxCreate(&second, 0, 0) == CUDA_SUCCESS);
#endif
    const CUdeviceptr other = memory(512);
    CHECK(free_pages() == before - 2);
    CHECK(cuMemFree(other) == CUDA_SUCCESS);
    CHECK(free_pages() == before - 1);
    CHECK(cuCtxDestroy(second) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHECK(cuMemFree(first) == CUDA_SUCCESS);
    CHECK(free_pages() == before);
}

TEST_CASE_METHOD(DriverFixture, "fresh pages are zero, a shared one keeps what was written",
                 "[simcuda]") {
    for (const std::size_t bytes : {page, 3 * page + 100}) {
        const CUdeviceptr gone = memory(bytes);
        REQUIRE(cuMemsetD8(gone, 0xa5, bytes) == CUDA_SUCCESS);
        REQUIRE(cuMemFree(gone) == CUDA_SUCCESS);
        const CUdeviceptr fresh = memory(bytes);
        CHECK(fresh == gone);
        CHECK(is_zero(fresh, bytes));
        CHECK(cuMemFree(fresh) == CUDA_SUCCESS);
    }
    const CUdeviceptr neighbour = memory(512);
    const CUdeviceptr gone = memory(4096);
    REQUIRE(cuMemsetD8(gone, 0xa5, 4096) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(gone) == CUDA_SUCCESS);
    const CUdeviceptr again = memory(4096);
    CHECK(again == gone);
    CHECK_FALSE(is_zero(again, 4096));
    CHECK(cuMemFree(again) == CUDA_SUCCESS);
    CHECK(cuMemFree(neighbour) == CUDA_SUCCESS);
    const CUdeviceptr alone = memory(4096);
    CHECK(is_zero(alone, 4096));
    CHECK(cuMemFree(alone) == CUDA_SUCCESS);
}
