// A tool frees memory of the program in a callback that the driver runs inside a call that memlab
// makes from inside itself, as tools do that are told of each driver call. On a GPU by CUPTI, on
// the simulated driver by its own interface for tools.
//
//   nested_frees        in a growth of memlab's pool. The frees succeed, the neighbours' contents
//                       stay, and the memory is available again. A second free of the same is
//                       refused, and so is what else is done with what was freed
//   nested_frees many   600 blocks at once, in the same place
//   nested_frees ends   before a context is destroyed and before the primary one is reset: some of
//                       its memory, and some of another one's
//
// Recorded: 6 device allocations, 6 frees; "many" 601 allocations, 513 frees, and that 88 frees
// found no room; "ends" 12 allocations, 10 frees, 2 lost with their contexts.
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include "program.hpp"
#include "tests/simcuda/tool.h"

using namespace program;

namespace {

constexpr std::size_t mib = 1 << 20;

CUdeviceptr victims[2];
CUresult answers[4];
bool armed = false;
void (*free_some)();

void free_twice() {
    answers[0] = cuMemFree(victims[1]);
    answers[1] = cuMemFree(victims[0]);
    answers[2] = cuMemFree(victims[0]);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    answers[3] = cuMemGetAddressRange(&base, &bytes, victims[0]);
}

void on_call() {
    if (armed) {
        armed = false;
        free_some();
    }
}

// The calls before which some memory is freed.
constexpr const char* symbols[] = {"cuMemAlloc_v2", "cuMemCreate", "cuCtxDestroy_v2",
                                   "cuDevicePrimaryCtxReset_v2"};
constexpr CUpti_CallbackId callbacks[] = {
    CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, CUPTI_DRIVER_TRACE_CBID_cuMemCreate,
    CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2, CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2};

void driver_call(const char* symbol, int entering) {
    for (const char* each : symbols) {
        if (entering != 0 && std::strcmp(symbol, each) == 0) {
            on_call();
        }
    }
}
void ignored(const char*, int) {}
void ignored_memory(simcuda_memory_kind, std::uint64_t, std::uint64_t, int) {}
void ignored_work(simcuda_work_kind, const char*, std::uint64_t, int) {}
const simcuda_tool tool = {driver_call, ignored, ignored_memory, ignored_work};

void CUPTIAPI on_cupti(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
    if (static_cast<const CUpti_CallbackData*>(data)->callbackSite == CUPTI_API_ENTER) {
        on_call();
    }
}

template <class Function>
Function* find(void* library, const char* name) {
    return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

bool be_told() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (auto* set = find<void(const simcuda_tool*)>(driver, "simcuda_set_tool")) {
        set(&tool);
        return true;
    }
    void* cupti = dlopen("libcupti.so.13", RTLD_NOW);
    auto* subscribe = find<decltype(cuptiSubscribe)>(cupti, "cuptiSubscribe");
    auto* enable = find<decltype(cuptiEnableCallback)>(cupti, "cuptiEnableCallback");
    CUpti_SubscriberHandle subscriber = nullptr;
    if (subscribe == nullptr || enable == nullptr ||
        subscribe(&subscriber, on_cupti, nullptr) != CUPTI_SUCCESS) {
        return false;
    }
    return std::all_of(std::begin(callbacks), std::end(callbacks), [&](CUpti_CallbackId each) {
        return enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, each) == CUPTI_SUCCESS;
    });
}

void in_a_growth() {
    CUdeviceptr blocks[4];
    for (CUdeviceptr& each : blocks) {
        each = allocate(3 * mib);
        CHECK(cuMemsetD8(each, 0x5a, 3 * mib));
    }
    CHECK(cuCtxSynchronize());
    victims[0] = blocks[0];
    victims[1] = blocks[1];
    free_some = free_twice;
    armed = true;
    const CUdeviceptr large = allocate(64 * mib);
    SAY("told: %d; frees: %d %d, again: %d, its range: %d\n", armed ? 0 : 1, answers[0], answers[1],
        answers[2], answers[3]);
    unsigned type = 0;
    SAY("what was freed: %d %d %d\n",
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, victims[0]),
        cuMemGetAddressRange(nullptr, nullptr, victims[1] + 1), cuMemsetD8(victims[0], 1, 1));
    unsigned char bytes[2] = {};
    CHECK(cuMemsetD8(blocks[2], 0x33, 3 * mib));
    CHECK(cuMemcpyDtoH(&bytes[0], blocks[2] + 3 * mib - 1, 1));
    CHECK(cuMemcpyDtoH(&bytes[1], blocks[3] + 100, 1));
    SAY("the neighbours: %x %x\n", bytes[0], bytes[1]);
    SAY("once more: %d\n", cuMemFree(victims[0]));
    const CUdeviceptr again = allocate(3 * mib);
    CHECK(cuMemsetD8(again, 1, 3 * mib));
    for (const CUdeviceptr each : {blocks[2], blocks[3], large, again}) {
        release(each);
    }
}

void many_at_once() {
    static CUdeviceptr blocks[600];
    for (CUdeviceptr& each : blocks) {
        each = allocate(1000);
    }
    free_some = [] {
        for (const CUdeviceptr each : blocks) {
            answers[cuMemFree(each) == CUDA_SUCCESS ? 0 : 1] = CUDA_ERROR_UNKNOWN;
        }
    };
    armed = true;
    release(allocate(64 * mib));
    SAY("told: %d; all freed: %d\n", armed ? 0 : 1, answers[1] == CUDA_SUCCESS ? 1 : 0);
}

void where_contexts_end() {
    CUcontext contexts[2] = {use_device(), nullptr};
    static CUdeviceptr theirs[2];
    static CUdeviceptr kept;
    free_some = [] {
        answers[0] = cuMemFree(theirs[0]);
        answers[1] = cuMemFree(victims[0]);
    };
    for (const bool reset : {false, true}) {
        // Of two blocks each, one is freed meanwhile.
        if (reset) {
            contexts[1] = contexts[0];
        } else {
            CHECK(program::create_context(&contexts[1]));
        }
        CHECK(cuCtxSetCurrent(contexts[1]));
        theirs[0] = allocate(3 * mib);
        theirs[1] = allocate(3 * mib);
        CUcontext other = contexts[0];
        if (reset) {
            CHECK(program::create_context(&other));
        }
        CHECK(cuCtxSetCurrent(other));
        victims[0] = allocate(3 * mib);
        kept = allocate(3 * mib);
        CHECK(cuMemsetD8(kept, 0x5a, 3 * mib));
        armed = true;
        if (reset) {
            CHECK(cuDevicePrimaryCtxReset(0));
        } else {
            CHECK(cuCtxDestroy(contexts[1]));
        }
        SAY("told: %d; frees: %d %d\n", armed ? 0 : 1, answers[0], answers[1]);
        CHECK(cuCtxSetCurrent(other));
        // At the addresses of what ended there may be others now: theirs is no free of before.
        CUdeviceptr blocks[2] = {allocate(3 * mib), allocate(3 * mib)};
        unsigned char byte = 0;
        for (const CUdeviceptr each : blocks) {
            CHECK(cuMemsetD8(each, 0x11, 3 * mib));
        }
        CHECK(cuMemcpyDtoH(&byte, kept + 3 * mib - 1, 1));
        SAY("its own: %x\n", byte);
        for (const CUdeviceptr each : {blocks[0], blocks[1], kept}) {
            release(each);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    use_device();
    if (!be_told()) {
        SAY("no tool\n");
        return 3;
    }
    if (argc == 1) {
        in_a_growth();
    } else if (std::strcmp(argv[1], "many") == 0) {
        many_at_once();
    } else {
        where_contexts_end();
    }
    return 0;
}
