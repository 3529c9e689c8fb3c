// Order and time: which work may run when, and that contents move with it.
#include <chrono>
#include <thread>

#include "tests/simcuda/driver_fixture.hpp"

using memlab::simcuda::DriverFixture;

TEST_CASE_METHOD(DriverFixture, "an idle GPU completes work at once", "[simcuda]") {
    CUstream s = stream();
    CUevent e = event();
    simcuda_kernel(s, 0, nullptr, 0);
    cuEventRecord(e, s);
    CHECK(cuEventQuery(e) == CUDA_SUCCESS);
    CHECK(cuStreamQuery(s) == CUDA_SUCCESS);
    CHECK(simcuda_stream_idle(s) == 1);
}

TEST_CASE_METHOD(DriverFixture, "a closed stream's work waits until it is opened", "[simcuda]") {
    CUstream s = stream();
    CUstream other = stream();
    CUevent e = event();
    CUdeviceptr p = memory(4096);
    REQUIRE(cuMemsetD8(p, 1, 16) == CUDA_SUCCESS);
    simcuda_close_stream(s);
    cuMemsetD8Async(p, 2, 16, s);
    cuEventRecord(e, s);
    CHECK(cuEventQuery(e) == CUDA_ERROR_NOT_READY);
    CHECK(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
    CHECK(cuStreamQuery(other) == CUDA_SUCCESS);
    CHECK(byte_at(p) == 1);
    simcuda_open_stream(s);
    CHECK(cuEventQuery(e) == CUDA_SUCCESS);
    CHECK(byte_at(p) == 2);
    cuMemFree(p);
}

TEST_CASE_METHOD(DriverFixture, "work takes virtual time that a host's wait moves", "[simcuda]") {
    CUstream s = stream();
    CUevent begin = nullptr;
    CUevent end = nullptr;
    cuEventCreate(&begin, 0);
    cuEventCreate(&end, 0);
    const uint64_t start = simcuda_now();
    cuEventRecord(begin, s);
    simcuda_kernel(s, 3'000'000, nullptr, 0);
    cuEventRecord(end, s);
    simcuda_advance(2'999'999);
    CHECK(cuEventQuery(end) == CUDA_ERROR_NOT_READY);
    simcuda_advance(1);
    CHECK(cuEventQuery(end) == CUDA_SUCCESS);
    float milliseconds = 0;
    REQUIRE(cuEventElapsedTime(&milliseconds, begin, end) == CUDA_SUCCESS);
    CHECK(milliseconds == Approx(3.0));

    simcuda_set_work_time(s, 5'000'000);
    CUdeviceptr p = memory(64);
    cuMemsetD8Async(p, 1, 64, s);
    CHECK(simcuda_stream_idle(s) == 0);
    REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
    CHECK(simcuda_now() == start + 8'000'000);
    cuMemFree(p);
}

TEST_CASE_METHOD(DriverFixture, "streams run side by side", "[simcuda]") {
    CUstream a = stream();
    CUstream b = stream();
    const uint64_t start = simcuda_now();
    simcuda_kernel(a, 100, nullptr, 0);
    simcuda_kernel(b, 70, nullptr, 0);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(simcuda_now() == start + 100);
}

TEST_CASE_METHOD(DriverFixture, "the legacy stream and blocking streams wait for each other",
                 "[simcuda]") {
    CUstream blocking = stream(CU_STREAM_DEFAULT);
    CUstream free_running = stream();
    simcuda_close_stream(blocking);
    simcuda_kernel(blocking, 0, nullptr, 0);
    simcuda_kernel(nullptr, 0, nullptr, 0);
    simcuda_kernel(free_running, 0, nullptr, 0);
    CHECK(simcuda_stream_idle(nullptr) == 0);
    CHECK(simcuda_stream_idle(free_running) == 1);
    // And per-thread default streams are blocking ones.
    simcuda_kernel(CU_STREAM_PER_THREAD, 0, nullptr, 0);
    CHECK(simcuda_stream_idle(CU_STREAM_PER_THREAD) == 0);
    simcuda_open_stream(blocking);
    CHECK(simcuda_stream_idle(nullptr) == 1);
    CHECK(simcuda_stream_idle(CU_STREAM_PER_THREAD) == 1);
}

TEST_CASE_METHOD(DriverFixture, "a context wait holds back all later work of the context",
                 "[simcuda]") {
    CUstream slow = stream();
    CUstream other = stream();
    CUevent e = event();
    simcuda_close_stream(slow);
    simcuda_kernel(slow, 0, nullptr, 0);
    REQUIRE(cuCtxRecordEvent(context, e) == CUDA_SUCCESS);
    CHECK(cuEventQuery(e) == CUDA_ERROR_NOT_READY);
    simcuda_kernel(other, 0, nullptr, 0);
    CHECK(simcuda_stream_idle(other) == 1);
    REQUIRE(cuCtxWaitEvent(context, e) == CUDA_SUCCESS);
    simcuda_kernel(other, 0, nullptr, 0);
    CUstream younger = stream();
    simcuda_kernel(younger, 0, nullptr, 0);
    CHECK(simcuda_stream_idle(other) == 0);
    CHECK(simcuda_stream_idle(younger) == 0);
    simcuda_open_stream(slow);
    CHECK(simcuda_stream_idle(other) == 1);
    CHECK(simcuda_stream_idle(younger) == 1);
    CHECK(cuEventQuery(e) == CUDA_SUCCESS);
}

TEST_CASE_METHOD(DriverFixture, "a context event captures only what was submitted before it",
                 "[simcuda]") {
    CUstream s = stream();
    CUstream late = stream();
    CUevent e = event();
    simcuda_kernel(s, 0, nullptr, 0);
    REQUIRE(cuCtxRecordEvent(context, e) == CUDA_SUCCESS);
    simcuda_close_stream(late);
    simcuda_kernel(late, 0, nullptr, 0);
    CHECK(cuEventQuery(e) == CUDA_SUCCESS);
    simcuda_open_stream(late);
}

TEST_CASE_METHOD(DriverFixture, "work of a destroyed stream still counts", "[simcuda]") {
    CUstream s = stream();
    CUevent e = event();
    simcuda_kernel(s, 1000, nullptr, 0);
    REQUIRE(cuStreamDestroy(s) == CUDA_SUCCESS);
    REQUIRE(cuCtxRecordEvent(context, e) == CUDA_SUCCESS);
    CHECK(cuEventQuery(e) == CUDA_ERROR_NOT_READY);
    simcuda_advance(1000);
    CHECK(cuEventQuery(e) == CUDA_SUCCESS);
}

TEST_CASE_METHOD(DriverFixture, "cuMemFree waits for the work before it", "[simcuda]") {
    CUstream s = stream();
    CUdeviceptr p = memory(1 << 20);
    const uint64_t start = simcuda_now();
    simcuda_kernel(s, 500, nullptr, 0);
    REQUIRE(cuMemFree(p) == CUDA_SUCCESS);
    CHECK(simcuda_now() == start + 500);
}

TEST_CASE_METHOD(DriverFixture, "a host thread waits until another opens the stream", "[simcuda]") {
    CUstream s = stream();
    simcuda_close_stream(s);
    simcuda_kernel(s, 0, nullptr, 0);
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        cuCtxSetCurrent(context);
        simcuda_open_stream(s);
    });
    CHECK(cuStreamSynchronize(s) == CUDA_SUCCESS);
    CHECK(simcuda_stream_idle(s) == 1);
    opener.join();
}

TEST_CASE_METHOD(DriverFixture, "unfenced reuse really overwrites, fenced reuse does not",
                 "[simcuda]") {
    CUstream a = stream();
    CUstream b = stream();
    CUdeviceptr p = memory(4096);
    CUevent e = event();
    const bool fenced = GENERATE(false, true);
    cuMemsetD8(p, 0, 16);
    simcuda_close_stream(a);
    cuMemsetD8Async(p, 1, 16, a);  // the old owner, late
    if (fenced) {
        cuCtxRecordEvent(context, e);
        cuCtxWaitEvent(context, e);
    }
    cuMemsetD8Async(p, 2, 16, b);  // the new owner
    simcuda_open_stream(a);
    cuCtxSynchronize();
    CHECK(byte_at(p) == (fenced ? 2 : 1));
    cuMemFree(p);
}

TEST_CASE_METHOD(DriverFixture, "host functions run in stream order, without the driver's lock",
                 "[simcuda]") {
    CUstream s = stream();
    int calls = 0;
    simcuda_close_stream(s);
    cuLaunchHostFunc(
        s, [](void* data) { ++*static_cast<int*>(data); }, &calls);
    CHECK(calls == 0);
    simcuda_open_stream(s);
    CHECK(calls == 1);
}

TEST_CASE_METHOD(DriverFixture, "a primary context's events see its green contexts", "[simcuda]") {
    CUdevResource resource{};
    CUdevResourceDesc description = nullptr;
    CUgreenCtx green = nullptr;
    CUstream s = nullptr;
    CUevent e = event();
    REQUIRE(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS);
    REQUIRE(cuDevResourceGenerateDesc(&description, &resource, 1) == CUDA_SUCCESS);
    REQUIRE(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS);
    REQUIRE(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
    simcuda_kernel(s, 10, nullptr, 0);
    REQUIRE(cuCtxRecordEvent(context, e) == CUDA_SUCCESS);
    CHECK(cuEventQuery(e) == CUDA_ERROR_NOT_READY);
    REQUIRE(cuCtxWaitEvent(context, e) == CUDA_SUCCESS);
    simcuda_advance(10);
    CHECK(cuEventQuery(e) == CUDA_SUCCESS);
    CHECK(cuGreenCtxDestroy(green) == CUDA_SUCCESS);
}
