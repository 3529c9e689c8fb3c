// The race detector: unordered reuse is caught whatever the timing, ordered reuse is not.
#include "tests/simcuda/driver_fixture.hpp"

using memlab::simcuda::DriverFixture;

namespace {

// Memory whose first owner writes it on one stream, and whose second is to use it on another.
struct Reuse : DriverFixture {
    Reuse() {
        p = memory(1 << 20);
        simcuda_owner(p, 4096, 1);
        simcuda_declare_access(first, p, 4096, 1);
    }
    ~Reuse() { simcuda_forget_races(); }

    void hand_over() const { simcuda_owner(p, 4096, 2); }
    void use(CUstream stream, bool write = true) const {
        simcuda_declare_access(stream, p + 100, 64, write ? 1 : 0);
    }

    CUdeviceptr p = 0;
    CUstream first = stream();
    CUstream second = stream();
};

}  // namespace

TEST_CASE_METHOD(Reuse, "unordered reuse is a race on an idle GPU too", "[simcuda]") {
    hand_over();
    use(second);
    CHECK(simcuda_races() == 1);
}

TEST_CASE_METHOD(Reuse, "an unordered read of what another wrote is a race", "[simcuda]") {
    hand_over();
    use(second, false);
    CHECK(simcuda_races() == 1);
}

TEST_CASE_METHOD(Reuse, "the same stream is ordered", "[simcuda]") {
    hand_over();
    use(first);
    CHECK(simcuda_races() == 0);
}

TEST_CASE_METHOD(Reuse, "an early kernel is not ordered behind the one before it", "[simcuda]") {
    hand_over();
    const simcuda_access write = {p + 100, 64, 1, 0};
    SECTION("at once") {
        simcuda_early_kernel(first, 0, &write, 1);
        CHECK(simcuda_races() == 1);
    }
    SECTION("nor is one that follows such a kernel") {
        simcuda_early_kernel(first, 0, nullptr, 0);
        simcuda_early_kernel(first, 0, &write, 1);
        CHECK(simcuda_races() == 1);
    }
    SECTION("but behind what came before an ordinary one") {
        simcuda_kernel(first, 0, nullptr, 0);
        simcuda_early_kernel(first, 0, &write, 1);
        CHECK(simcuda_races() == 0);
    }
    SECTION("and what follows is ordered behind both") {
        simcuda_early_kernel(first, 0, nullptr, 0);
        use(first);
        CHECK(simcuda_races() == 0);
    }
}

TEST_CASE_METHOD(Reuse, "an event wait orders", "[simcuda]") {
    CUevent e = event();
    cuEventRecord(e, first);
    cuStreamWaitEvent(second, e, 0);
    hand_over();
    use(second);
    CHECK(simcuda_races() == 0);
}

TEST_CASE_METHOD(Reuse, "an event recorded before the old owner's work does not order",
                 "[simcuda]") {
    CUevent e = event();
    cuEventRecord(e, first);
    simcuda_declare_access(first, p, 4096, 1);
    cuStreamWaitEvent(second, e, 0);
    hand_over();
    use(second);
    CHECK(simcuda_races() == 1);
}

TEST_CASE_METHOD(Reuse, "a context event and wait order every stream, later ones too",
                 "[simcuda]") {
    CUevent e = event();
    cuCtxRecordEvent(context, e);
    cuCtxWaitEvent(context, e);
    hand_over();
    use(second);
    use(stream());
    CHECK(simcuda_races() == 0);
}

TEST_CASE_METHOD(Reuse, "a context event without its wait orders nothing", "[simcuda]") {
    CUevent e = event();
    cuCtxRecordEvent(context, e);
    hand_over();
    use(second);
    CHECK(simcuda_races() == 1);
}

TEST_CASE_METHOD(Reuse, "what the host saw complete is ordered before what it submits",
                 "[simcuda]") {
    SECTION("cuEventQuery of a context event") {
        CUevent e = event();
        cuCtxRecordEvent(context, e);
        REQUIRE(cuEventQuery(e) == CUDA_SUCCESS);
    }
    SECTION("cuCtxSynchronize") {
        cuCtxSynchronize();
    }
    SECTION("cuStreamSynchronize") {
        cuStreamSynchronize(first);
    }
    SECTION("cuStreamQuery") {
        REQUIRE(cuStreamQuery(first) == CUDA_SUCCESS);
    }
    hand_over();
    use(second);
    CHECK(simcuda_races() == 0);
}

TEST_CASE_METHOD(Reuse, "synchronizing with another stream orders nothing", "[simcuda]") {
    cuStreamSynchronize(second);
    hand_over();
    use(second);
    CHECK(simcuda_races() == 1);
}

TEST_CASE_METHOD(Reuse, "an owner's own accesses are its own affair", "[simcuda]") {
    use(second);
    CHECK(simcuda_races() == 0);
}

TEST_CASE_METHOD(Reuse, "the rest of the memory is not concerned", "[simcuda]") {
    simcuda_owner(p + 8192, 4096, 2);
    simcuda_declare_access(second, p + 8192, 4096, 1);
    CHECK(simcuda_races() == 0);
}

TEST_CASE_METHOD(Reuse, "copies and fills count by themselves", "[simcuda]") {
    hand_over();
    cuMemsetD8Async(p, 0, 16, second);
    CHECK(simcuda_races() == 1);
}

TEST_CASE_METHOD(DriverFixture, "two readers do not race", "[simcuda]") {
    CUdeviceptr p = memory(4096);
    CUstream a = stream();
    CUstream b = stream();
    simcuda_owner(p, 4096, 1);
    simcuda_declare_access(a, p, 4096, 0);
    simcuda_owner(p, 4096, 2);
    simcuda_declare_access(b, p, 4096, 0);
    CHECK(simcuda_races() == 0);
}

TEST_CASE_METHOD(DriverFixture, "the driver's own reuse is ordered", "[simcuda]") {
    CUstream a = stream();
    CUstream b = stream();
    CUdeviceptr p = memory(4096);
    cuMemsetD8Async(p, 1, 4096, a);
    cuMemFree(p);
    CUdeviceptr q = memory(4096);
    REQUIRE(q == p);
    cuMemsetD8Async(q, 1, 4096, b);
    CHECK(simcuda_races() == 0);

    CUdeviceptr r = 0;
    cuMemAllocAsync(&r, 4096, a);
    cuMemsetD8Async(r, 1, 4096, a);
    cuMemFreeAsync(r, a);
    CUdeviceptr t = 0;
    cuMemAllocAsync(&t, 4096, b);
    cuMemsetD8Async(t, 1, 4096, b);
    CHECK(simcuda_races() == 0);
}

TEST_CASE_METHOD(DriverFixture, "work of a launched graph is work of its stream", "[simcuda]") {
    CUstream a = stream();
    CUstream b = stream();
    CUdeviceptr p = memory(4096);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    simcuda_owner(p, 4096, 1);
    cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    simcuda_declare_access(a, p, 4096, 1);
    REQUIRE(cuStreamEndCapture(a, &graph) == CUDA_SUCCESS);
    REQUIRE(cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    CHECK(simcuda_races() == 0);
    REQUIRE(cuGraphLaunch(exec, a) == CUDA_SUCCESS);
    simcuda_owner(p, 4096, 2);
    simcuda_declare_access(b, p, 4096, 1);
    CHECK(simcuda_races() == 1);
    simcuda_forget_races();
}
