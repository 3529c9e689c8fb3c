// A tool frees memory of the program in a callback that the driver runs inside a call that memlab
// makes from inside itself (a growth of its pool), as tools do that are told of each driver call.
// The frees succeed, the neighbours' contents stay, and the memory can be had again. A second free
// of the same is refused, and so is what else is done with what was freed. On a GPU by CUPTI, on
// the simulated driver by its own interface for tools.
//
// Recorded: 6 device allocations, 6 frees.
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "program.hpp"
#include "tests/simcuda/tool.h"

using namespace program;

namespace {

constexpr std::size_t mib = 1 << 20;

CUdeviceptr victims[2];
CUresult answers[4];
bool armed = false;

void on_growth() {
    if (!armed) {
        return;
    }
    armed = false;
    answers[0] = cuMemFree(victims[1]);
    answers[1] = cuMemFree(victims[0]);
    answers[2] = cuMemFree(victims[0]);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    answers[3] = cuMemGetAddressRange(&base, &bytes, victims[0]);
}

void driver_call(const char* symbol, int entering) {
    if (entering != 0 &&
        (std::strcmp(symbol, "cuMemAlloc_v2") == 0 || std::strcmp(symbol, "cuMemCreate") == 0)) {
        on_growth();
    }
}
void ignored(const char*, int) {}
void ignored_memory(simcuda_memory_kind, std::uint64_t, std::uint64_t, int) {}
void ignored_work(simcuda_work_kind, const char*, std::uint64_t, int) {}
const simcuda_tool tool = {driver_call, ignored, ignored_memory, ignored_work};

void CUPTIAPI on_cupti(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
    const auto* call = static_cast<const CUpti_CallbackData*>(data);
    if (call->callbackSite == CUPTI_API_ENTER && (id == CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2 ||
                                                  id == CUPTI_DRIVER_TRACE_CBID_cuMemCreate)) {
        on_growth();
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
    return subscribe != nullptr && enable != nullptr &&
           subscribe(&subscriber, on_cupti, nullptr) == CUPTI_SUCCESS &&
           enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
                  CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2) == CUPTI_SUCCESS &&
           enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemCreate) ==
               CUPTI_SUCCESS;
}

}  // namespace

int main() {
    use_device();
    if (!be_told()) {
        SAY("no tool\n");
        return 3;
    }
    CUdeviceptr blocks[4];
    for (CUdeviceptr& each : blocks) {
        each = allocate(3 * mib);
        CHECK(cuMemsetD8(each, 0x5a, 3 * mib));
    }
    CHECK(cuCtxSynchronize());
    victims[0] = blocks[0];
    victims[1] = blocks[1];
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
    return 0;
}
