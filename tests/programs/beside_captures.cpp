// What a program may do while one of its streams is being captured, by another thread or in relaxed
// mode: memory that it has freed is there for whatever it allocates, and a free in a stream's order
// waits for nothing. Prints every answer.
//
//   beside_captures relaxed       most of the GPU was freed before the capture, and is allocated
//                                 during it
//   beside_captures exchanged     ... by a thread that exchanged its mode, in a global capture
//   beside_captures other_thread  ... by another thread
//   beside_captures create        ... by cuMemCreate
//   beside_captures freed         freed in the capture as well
//   beside_captures thread_ends   the thread that captured its own stream has ended
//   beside_captures never_ended   the thread that captured has ended, its capture has not
//   beside_captures stream        a free in a stream beside a kernel that goes on
//   beside_captures joined        a free in a stream that joined the capture
//   beside_captures invalidated   a free in a stream whose capture has failed
//   beside_captures legacy        a free in the legacy stream, which the capture forbids
//   beside_captures handle        a graph whose handle was that of a capture that failed
//
// Ends with code 5 when it hangs.
#include <cuda.h>

#include <cstring>
#include <thread>

#include "spinning.hpp"

using namespace program;

namespace {

constexpr std::size_t mib = 1 << 20;

CUcontext context;
CUstream captured;
CUgraph graph;
CUdeviceptr p;

void print(const char* call, CUresult result) {
    SAY("%s: %d\n", call, static_cast<int>(result));
}
#define PRINT(call) print(#call, (call))

std::size_t percent(std::size_t many) {
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    CHECK(cuMemGetInfo(&free_bytes, &total));
    return total / 100 * many / (2 * mib) * (2 * mib);
}

void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED) {
    CHECK(cuStreamBeginCapture(captured, mode));
}
void end() {
    PRINT(cuStreamEndCapture(captured, &graph));
}
void say_status() {
    CUstreamCaptureStatus status{};
    PRINT(cuStreamIsCapturing(captured, &status));
    SAY("status %d\n", static_cast<int>(status));
}

CUdeviceptr pieces[8];

void take_most() {
    const std::size_t bytes = percent(8);
    for (CUdeviceptr& each : pieces) {
        each = allocate(bytes);
    }
}
void give_back() {
    for (const CUdeviceptr each : pieces) {
        release(each);
    }
}
void allocate_most() {
    PRINT(cuMemAlloc(&p, percent(60)));
}

template <class Body>
void in_a_thread(Body body) {
    std::thread([&] {
        CHECK(cuCtxSetCurrent(context));
        body();
    }).join();
}

void relaxed() {
    take_most();
    give_back();
    begin();
    allocate_most();
    PRINT(cuMemFree(p));
    end();
}

void exchanged() {
    take_most();
    give_back();
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    allocate_most();
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    end();
}

void other_thread() {
    take_most();
    give_back();
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    in_a_thread(allocate_most);
    end();
}

void create() {
    take_most();
    give_back();
    begin();
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle = 0;
    PRINT(cuMemCreate(&handle, percent(60), &properties, 0));
    end();
}

void freed() {
    take_most();
    begin();
    give_back();
    allocate_most();
    end();
}

void thread_ends() {
    take_most();
    in_a_thread(
        [] { CHECK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED)); });
    give_back();
    allocate_most();
}

void never_ended() {
    take_most();
    in_a_thread([] { begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); });
    give_back();
    allocate_most();
}

void in_a_stream() {
    CUstream spinning = nullptr;
    CUstream other = nullptr;
    CHECK(cuStreamCreate(&spinning, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    p = allocate(3 * mib);
    Spin spin(spinning);
    spin.start();
    begin();
    PRINT(cuMemFreeAsync(p, other));
    say_status();
    end();
    spin.go();
    CHECK(cuCtxSynchronize());
    spin.done();
}

void joined() {
    CUstream other = nullptr;
    CUevent event = nullptr;
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    p = allocate(3 * mib);
    begin();
    CHECK(cuEventRecord(event, captured));
    CHECK(cuStreamWaitEvent(other, event, 0));
    PRINT(cuMemFreeAsync(p, other));
    say_status();
    CHECK(cuEventRecord(event, other));
    CHECK(cuStreamWaitEvent(captured, event, 0));
    end();
    PRINT(cuMemFree(p));
}

void invalidated() {
    p = allocate(3 * mib);
    CUdeviceptr q = 0;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    PRINT(cuMemAlloc(&q, mib));
    PRINT(cuMemFreeAsync(p, captured));
    end();
    PRINT(cuMemFree(p));
}

void in_the_legacy_stream() {
    CHECK(cuStreamCreate(&captured, CU_STREAM_DEFAULT));
    p = allocate(3 * mib);
    begin();
    PRINT(cuMemFreeAsync(p, nullptr));
    say_status();
    end();
    PRINT(cuMemFree(p));
}

// A fill past the end is taken by the capture; what it makes cannot be instantiated.
void handle_again() {
    p = allocate(100);
    CUdeviceptr q = 0;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    PRINT(cuMemsetD8Async(p, 1, 101, captured));
    PRINT(cuMemAlloc(&q, mib));
    end();
    for (int round = 0; round < 4; ++round) {
        begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        CHECK(cuMemsetD8Async(p, 1, 100, captured));
        CHECK(cuStreamEndCapture(captured, &graph));
        CUgraphExec executable = nullptr;
        PRINT(cuGraphInstantiate(&executable, graph, 0));
        CHECK(cuGraphDestroy(graph));
    }
}

struct Mode {
    const char* name;
    void (*run)();
};
constexpr Mode modes[] = {{"relaxed", relaxed},
                          {"exchanged", exchanged},
                          {"other_thread", other_thread},
                          {"create", create},
                          {"freed", freed},
                          {"thread_ends", thread_ends},
                          {"never_ended", never_ended},
                          {"stream", in_a_stream},
                          {"joined", joined},
                          {"invalidated", invalidated},
                          {"legacy", in_the_legacy_stream},
                          {"handle", handle_again}};

}  // namespace

int main(int argc, char** argv) {
    must_end_within(20);
    for (const Mode& mode : modes) {
        if (argc == 2 && std::strcmp(argv[1], mode.name) == 0) {
            context = use_device();
            CHECK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
            mode.run();
            SAY("done\n");
            return 0;
        }
    }
    return 2;
}
