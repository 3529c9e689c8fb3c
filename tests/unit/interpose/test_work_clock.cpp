// The driver functions that the work clock knows, and its time when distrusted or during a
// submission.
#include "interpose/driver/work_clock.hpp"

#include "interpose/driver/hooked_names.hpp"
#include "tests/catch.hpp"

using memlab::interpose::is_known_function;
using memlab::interpose::is_known_symbol;
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

TEST_CASE("pool-critical functions are recognized by their prefix") {
    for (const char* name :
         {"cuMemFree_v3", "cuMemFreeBatchAsync", "cuStreamBeginCapture_v9_ptsz",
          "cuStreamBeginRecaptureToGraph", "cuCtxDestroy_v3", "cuIpcGetMemHandle_v2"}) {
        INFO(name);
        CHECK(memlab::interpose::is_pool_critical(name));
    }
    for (const char* name : {"", "cuMemAlloc_v3", "cuLaunchKernel_v2", "cuStreamCreate_v2"}) {
        INFO(name);
        CHECK_FALSE(memlab::interpose::is_pool_critical(name));
    }
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
