// The driver functions that the work clock knows, and its time when distrusted or during a
// submission.
#include "interpose/driver/work_clock.hpp"

#include <utility>
#include <vector>

#include "interpose/driver/hooked_names.hpp"
#include "interpose/process/function_purpose.hpp"
#include "tests/catch.hpp"

using memlab::interpose::ends_pooling;
using memlab::interpose::is_known_function;
using memlab::interpose::is_known_symbol;
using memlab::interpose::Purpose;
using memlab::interpose::purpose_of;
using memlab::interpose::WorkClock;

TEST_CASE("a function is known by its base name, in any version") {
    for (const char* base : {"cuInit", "cuMemcpyHtoD", "cuLaunchKernelEx", "cuEventQuery",
                             "cuGraphLaunch", "cuGLGetDevices", "cuProfilerStart"}) {
        INFO(base);
        CHECK(is_known_function(base));
    }
    for (const char* other : {"", "cuLaunchKernelExtra", "cudaMalloc", "cuSimcudaUnlisted"}) {
        INFO(other);
        CHECK_FALSE(is_known_function(other));
    }
}

TEST_CASE("an exported symbol is known in the versions that its wrapper serves") {
    for (const char* symbol : {"cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemcpyHtoDAsync_v2_ptsz",
                               "cuEventQuery", "cuStreamGetCtx_v2_ptsz", "cuStreamGetCtx_v9"}) {
        INFO(symbol);
        CHECK(is_known_symbol(symbol));
    }
    for (const char* symbol : {"cuLaunchKernel_v2", "cuMemcpyHtoDAsync_v3", "cuSimcudaUnlisted"}) {
        INFO(symbol);
        CHECK_FALSE(is_known_symbol(symbol));
    }
}

TEST_CASE("what an unknown function does follows from the words of its name") {
    const std::pair<Purpose, std::vector<const char*>> purposes[] = {
        {Purpose::frees,
         {"cuMemFree_v3", "cuMemFreeBatchAsync", "cuCtxDestroy_v3", "cuCtxDetach_v2",
          "cuStreamDestroy_v3", "cuDevicePrimaryCtxRelease_v3", "cuDevicePrimaryCtxReset_v3",
          "cuGreenCtxDestroy_v2", "cuMemUnmap_v2", "cuMemReclaim", "cuMemHostUnregister_v2",
          "cuMemPoolTrimTo_v2", "cuMemDiscardBatchAsync_v2"}},
        {Purpose::captures,
         {"cuStreamBeginCapture_v9_ptsz", "cuStreamBeginRecaptureToGraph", "cuStreamEndCapture_v2",
          "cuThreadExchangeStreamCaptureMode_v2", "cuGraphDestroy_v2", "cuGraphExecDestroy_v2",
          "cuGraphAddNode_v9", "cuGraphInstantiate_v9", "cuGraphLaunch_v2", "cuGraphExecUpdate_v3",
          "cuGraphMemcpyNodeSetParams_v2"}},
        {Purpose::maps,
         {"cuIpcGetMemHandle_v2", "cuMemGetHandleForAddressRange_v2", "cuCtxEnablePeerAccess_v2",
          "cuMemMap_v2", "cuMemMapAlias", "cuMulticastBindMem_v9", "cuMemcpyPeerBatchAsync",
          "cuMemImportFromShareableHandle_v2", "cuMemExportToShareableHandle_v2",
          "cuIpcOpenMemHandle_v3", "cuMemSetAccess_v2"}},
        {Purpose::allocates,
         {"cuMemAlloc_v3", "cuMemAllocBatchAsync", "cuMemCreate_v2", "cuArrayCreate_v3",
          "cuMemAddressReserve_v2", "cuMemHostRegister_v3", "cuMemPoolCreate_v2"}},
        {Purpose::submits,
         {"cuLaunchKernel_v2", "cuLaunchTile", "cuMemcpyHtoDAsync_v3", "cuMemsetD8_v3",
          "cuMemPrefetchAsync_v3", "cuStreamWriteValue64_v3", "cuStreamBatchMemOp_v3"}},
        {Purpose::other,
         {"", "cu", "cuInit", "cuStreamCreate_v2", "cuMemGetAllocationGranularity_v2",
          "cuGraphGetNodes_v2", "cuStreamIsCapturing_v2", "cuStreamGetCaptureInfo_v9",
          "cuDeviceCanAccessPeer_v2", "cuMemGetInfo_v3", "cuModuleLoadData_v2",
          "cuSimcudaUnlisted"}},
    };
    for (const auto& [purpose, symbols] : purposes) {
        for (const char* symbol : symbols) {
            INFO(symbol);
            CHECK(purpose_of(symbol) == purpose);
        }
    }
    CHECK_FALSE(ends_pooling(Purpose::other));
    CHECK_FALSE(ends_pooling(Purpose::submits));
    CHECK(ends_pooling(Purpose::allocates));
    CHECK(ends_pooling(Purpose::frees));
}

TEST_CASE("a distrusted clock has no time, but counts on") {
    WorkClock clock;
    CHECK(clock.now() == 0U);
    { const WorkClock::Submission submission(clock); }
    CHECK(clock.now() == 1U);
    clock.distrust();
    { const WorkClock::Submission submission(clock); }
    CHECK_FALSE(clock.now().has_value());
    CHECK(clock.ticks() == 2);
}

TEST_CASE("the clock has no time while work is being submitted") {
    WorkClock clock;
    {
        const WorkClock::Submission outer(clock);
        CHECK_FALSE(clock.now().has_value());
        CHECK(clock.ticks() == 0);
        { const WorkClock::Submission inner(clock); }
        CHECK_FALSE(clock.now().has_value());
        CHECK(clock.ticks() == 1);
    }
    CHECK(clock.now() == 2U);
    CHECK(clock.ticks() == 2);
}
