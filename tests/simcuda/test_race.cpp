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

TEST_CASE_METHOD(DriverFixture, "memory is given back too early, in a stream's order or unmapped",
                 "[simcuda]") {
    CUstream a = stream();
    CUstream b = stream();
    const CUdeviceptr p = memory(4096);
    simcuda_declare_access(a, p, 4096, 0);
    SECTION("in the stream that used it") {
        CHECK(cuMemFreeAsync(p, a) == CUDA_SUCCESS);
        CHECK(simcuda_races() == 0);
    }
    SECTION("in another") {
        CHECK(cuMemFreeAsync(p, b) == CUDA_SUCCESS);
        CHECK(simcuda_races() == 1);
    }
    SECTION("in another, after the host has waited") {
        CHECK(cuStreamSynchronize(a) == CUDA_SUCCESS);
        CHECK(cuMemFreeAsync(p, b) == CUDA_SUCCESS);
        CHECK(simcuda_races() == 0);
    }
    SECTION("unmapped") {
        constexpr std::size_t page = std::size_t{2} << 20;
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CUmemGenericAllocationHandle handle = 0;
        CUdeviceptr range = 0;
        REQUIRE(cuMemCreate(&handle, page, &properties, 0) == CUDA_SUCCESS);
        REQUIRE(cuMemAddressReserve(&range, 2 * page, 0, 0, 0) == CUDA_SUCCESS);
        for (const bool waits : {true, false}) {
            REQUIRE(cuMemMap(range, page, 0, handle, 0) == CUDA_SUCCESS);
            simcuda_declare_access(b, range + 64, 64, 1);
            if (waits) {
                REQUIRE(cuStreamSynchronize(b) == CUDA_SUCCESS);
            }
            CHECK(cuMemUnmap(range, page) == CUDA_SUCCESS);
            CHECK(simcuda_races() == (waits ? 0 : 1));
        }
    }
    simcuda_forget_races();
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

namespace {

// A copy or fill of memory that a graph names, launched on one stream; its second owner uses it on
// another.
struct GraphReuse : Reuse {
    GraphReuse() {
        source = memory(4096);
        elsewhere = memory(4096);
        simcuda_forget_races();
    }

    CUDA_MEMCPY3D copy_to(CUdeviceptr to) const {
        CUDA_MEMCPY3D copy{};
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = source;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = to;
        copy.WidthInBytes = 4096;
        copy.Height = 1;
        copy.Depth = 1;
        return copy;
    }
    static CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to) { return {to, 0, 7, 1, 4096, 1}; }

    static CUgraph new_graph() {
        CUgraph graph = nullptr;
        REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
        return graph;
    }
    CUgraphNode add_copy(CUgraph graph, CUdeviceptr to) const {
        const CUDA_MEMCPY3D copy = copy_to(to);
        CUgraphNode node = nullptr;
        REQUIRE(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context) == CUDA_SUCCESS);
        return node;
    }
    CUgraphNode add_fill(CUgraph graph, CUdeviceptr to) const {
        const CUDA_MEMSET_NODE_PARAMS fill = fill_of(to);
        CUgraphNode node = nullptr;
        REQUIRE(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context) == CUDA_SUCCESS);
        return node;
    }
    static CUgraphExec instantiate(CUgraph graph) {
        CUgraphExec made = nullptr;
        REQUIRE(cuGraphInstantiate(&made, graph, 0) == CUDA_SUCCESS);
        return made;
    }

    // The graph's launch is the last of the first owner's work, and the only one unordered.
    void must_race(CUgraphExec made) const {
        cuCtxSynchronize();
        CHECK(simcuda_races() == 0);
        REQUIRE(cuGraphLaunch(made, first) == CUDA_SUCCESS);
        hand_over();
        use(second);
        CHECK(simcuda_races() == 1);
    }

    CUdeviceptr source = 0;
    CUdeviceptr elsewhere = 0;
};

}  // namespace

TEST_CASE_METHOD(GraphReuse, "copies and fills of a graph are accesses at its launch",
                 "[simcuda]") {
    CUgraph graph = new_graph();
    SECTION("a copy") {
        add_copy(graph, p);
    }
    SECTION("a fill") {
        add_fill(graph, p);
    }
    SECTION("a general copy") {
        CUgraphNodeParams any{};
        CUgraphNode node = nullptr;
        any.type = CU_GRAPH_NODE_TYPE_MEMCPY;
        any.memcpy.copyCtx = context;
        any.memcpy.copyParams = copy_to(p);
        REQUIRE(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &any) == CUDA_SUCCESS);
    }
    SECTION("a copy whose parameters change") {
        const CUDA_MEMCPY3D copy = copy_to(p);
        REQUIRE(cuGraphMemcpyNodeSetParams(add_copy(graph, elsewhere), &copy) == CUDA_SUCCESS);
    }
    SECTION("a fill whose parameters change") {
        const CUDA_MEMSET_NODE_PARAMS fill = fill_of(p);
        REQUIRE(cuGraphMemsetNodeSetParams(add_fill(graph, elsewhere), &fill) == CUDA_SUCCESS);
    }
    SECTION("in a child graph of a child graph, of which the copy counts") {
        CUgraph inner = new_graph();
        CUgraph outer = new_graph();
        CUgraphNode node = nullptr;
        const CUgraphNode copy = add_copy(inner, p);
        REQUIRE(cuGraphAddChildGraphNode(&node, outer, nullptr, 0, inner) == CUDA_SUCCESS);
        REQUIRE(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, outer) == CUDA_SUCCESS);
        const CUDA_MEMCPY3D other = copy_to(elsewhere);
        REQUIRE(cuGraphMemcpyNodeSetParams(copy, &other) == CUDA_SUCCESS);
        CHECK(cuGraphDestroy(outer) == CUDA_SUCCESS);
        CHECK(cuGraphDestroy(inner) == CUDA_SUCCESS);
    }
    SECTION("cloned") {
        CUgraph original = new_graph();
        add_copy(original, p);
        REQUIRE(cuGraphClone(&graph, original) == CUDA_SUCCESS);
        CHECK(cuGraphDestroy(original) == CUDA_SUCCESS);
    }
    must_race(instantiate(graph));
}

TEST_CASE_METHOD(GraphReuse, "an executable graph's copies and fills can be others", "[simcuda]") {
    CUgraph graph = new_graph();
    const CUgraphNode copy = add_copy(graph, elsewhere);
    const CUgraphNode fill = add_fill(graph, elsewhere);
    CUgraphExec made = instantiate(graph);
    SECTION("a copy") {
        const CUDA_MEMCPY3D other = copy_to(p);
        REQUIRE(cuGraphExecMemcpyNodeSetParams(made, copy, &other, context) == CUDA_SUCCESS);
    }
    SECTION("a fill") {
        const CUDA_MEMSET_NODE_PARAMS other = fill_of(p);
        REQUIRE(cuGraphExecMemsetNodeSetParams(made, fill, &other, context) == CUDA_SUCCESS);
    }
    SECTION("by an update, after which the nodes are the same") {
        CUgraph other = new_graph();
        add_copy(other, p);
        add_fill(other, p);
        CUgraphExecUpdateResultInfo info{};
        REQUIRE(cuGraphExecUpdate(made, other, &info) == CUDA_SUCCESS);
        const CUDA_MEMSET_NODE_PARAMS again = fill_of(elsewhere);
        REQUIRE(cuGraphExecMemsetNodeSetParams(made, fill, &again, context) == CUDA_SUCCESS);
    }
    must_race(made);
}

TEST_CASE_METHOD(GraphReuse, "what an executable graph no longer names is no access", "[simcuda]") {
    CUgraph graph = new_graph();
    const CUgraphNode copy = add_copy(graph, p);
    CUgraphExec made = instantiate(graph);
    const CUDA_MEMCPY3D other = copy_to(elsewhere);
    REQUIRE(cuGraphExecMemcpyNodeSetParams(made, copy, &other, context) == CUDA_SUCCESS);
    cuCtxSynchronize();
    REQUIRE(cuGraphLaunch(made, first) == CUDA_SUCCESS);
    hand_over();
    use(second);
    CHECK(simcuda_races() == 0);
}
