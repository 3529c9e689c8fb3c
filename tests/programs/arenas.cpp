// A program of allocators of its own, which tell memlab of their blocks: by memlab.h, or by the
// regions of NVTX's heaps.
//
//   arenas api|api_vmm|nested|nvtx|refused|draft|threads
//
// Recorded, for each allocator and GPU: its blocks with their stacks, and what holds them as
// reserved, both to the byte: it prints what it counted.
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "memlab/memlab.h"
#include "program.hpp"

using namespace program;

namespace {

constexpr std::uint64_t mebibyte = 1 << 20;

struct Counted {
    std::uint64_t allocated = 0;
    std::uint64_t peak = 0;
    std::uint64_t reserved = 0;
    std::uint64_t reserved_peak = 0;
    std::uint64_t blocks = 0;
    std::uint64_t live = 0;

    void take(std::uint64_t bytes) {
        allocated += bytes;
        peak = std::max(peak, allocated);
        ++blocks;
        ++live;
    }
    void give(std::uint64_t bytes) {
        allocated -= bytes;
        --live;
    }
    void reserve(std::uint64_t bytes) {
        reserved += bytes;
        reserved_peak = std::max(reserved_peak, reserved);
    }
    void print(const char* name) const {
        SAY("%s: allocated %llu, at most %llu; reserved %llu, at most %llu; blocks %llu, live "
            "%llu\n",
            name, static_cast<unsigned long long>(allocated), static_cast<unsigned long long>(peak),
            static_cast<unsigned long long>(reserved),
            static_cast<unsigned long long>(reserved_peak), static_cast<unsigned long long>(blocks),
            static_cast<unsigned long long>(live));
    }
};

const void* pointer(CUdeviceptr address) {
    return reinterpret_cast<const void*>(address);
}

/// Cuts the memory into blocks of 64 KiB.
class Arena {
  public:
    static constexpr std::uint64_t slot = 64 << 10;

    Arena(std::string name, CUdeviceptr base, std::uint64_t bytes)
        : name_(std::move(name)), base_(base), used_(bytes / slot) {}

    [[gnu::noinline]] CUdeviceptr allocate(std::uint64_t bytes) {
        for (std::size_t i = 0; i < used_.size(); ++i) {
            if (used_[i] == 0) {
                used_[i] = bytes;
                counted.take(bytes);
                memlab_suballoc(name_.c_str(), pointer(base_ + i * slot), bytes);
                return base_ + i * slot;
            }
        }
        return 0;
    }
    void free(CUdeviceptr address) {
        const std::size_t i = (address - base_) / slot;
        counted.give(used_[i]);
        used_[i] = 0;
        memlab_subfree(name_.c_str(), pointer(address));
    }
    void forget_all() {
        for (std::uint64_t& bytes : used_) {
            if (bytes != 0) {
                counted.give(bytes);
                bytes = 0;
            }
        }
    }

    Counted counted;

  private:
    std::string name_;
    CUdeviceptr base_;
    std::vector<std::uint64_t> used_;
};

/// Allocates and frees at random; half of the blocks or so stay.
void work(Arena& arena, unsigned seed, int count) {
    std::mt19937 random(seed);
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < count; ++i) {
        if (!blocks.empty() && random() % 5 < 2) {
            std::swap(blocks[random() % blocks.size()], blocks.back());
            arena.free(blocks.back());
            blocks.pop_back();
        } else if (const CUdeviceptr block = arena.allocate(1 + random() % Arena::slot)) {
            blocks.push_back(block);
        }
    }
}

CUdeviceptr map_memory(std::uint64_t bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    CHECK(cuMemCreate(&handle, bytes, &properties, 0));
    CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CHECK(cuMemMap(address, bytes, 0, handle, 0));
    CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemSetAccess(address, bytes, &access, 1));
    return address;
}

void api(bool mapped) {
    const std::uint64_t bytes = 16 * mebibyte;
    const CUdeviceptr memory = mapped ? map_memory(bytes) : allocate(bytes);
    Arena arena("my arena", memory, bytes);
    arena.counted.reserve(bytes);
    work(arena, 1, 500);
    // A second piece of memory, which ends with blocks in it.
    const CUdeviceptr more = allocate(4 * mebibyte);
    Arena second("my arena", more, 4 * mebibyte);
    second.counted = arena.counted;
    second.counted.reserve(4 * mebibyte);
    work(second, 2, 40);
    second.forget_all();
    release(more);
    Counted all = second.counted;
    all.allocated = arena.counted.allocated;
    all.live = arena.counted.live;
    all.reserved = arena.counted.reserved;
    all.print("my arena on GPU 0");
}

/// An arena in a block of another one, at the very same address, and one in a block of that.
void nested() {
    const CUdeviceptr memory = allocate(8 * mebibyte);
    Counted outer;
    outer.reserve(8 * mebibyte);
    memlab_suballoc("outer", pointer(memory), 4 * mebibyte);
    outer.take(4 * mebibyte);
    memlab_suballoc("outer", pointer(memory + 4 * mebibyte), mebibyte);
    outer.take(mebibyte);
    Arena inner("inner", memory, 2 * mebibyte);
    inner.counted.reserve(4 * mebibyte);
    memlab_scope_begin("inner work");
    work(inner, 3, 20);
    memlab_scope_end();
    const CUdeviceptr held = inner.allocate(Arena::slot);
    memlab_suballoc("innermost", pointer(held), 1000);
    memlab_mark("three levels");
    inner.counted.print("inner at its mark");
    // The block that all of them lie in goes back.
    memlab_subfree("outer", pointer(memory));
    outer.give(4 * mebibyte);
    inner.forget_all();
    inner.counted.reserved = 0;
    outer.print("outer on GPU 0");
    inner.counted.print("inner on GPU 0");
}

void nvtx() {
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("LIB");
    const CUdeviceptr memory = allocate(8 * mebibyte);
    nvtxMemVirtualRangeDesc_t range{8 * mebibyte, pointer(memory)};
    nvtxMemHeapDesc_t heap{};
    heap.extCompatID = NVTX_EXT_COMPATID_MEM;
    heap.structSize = sizeof heap;
    heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
    heap.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    heap.typeSpecificDescSize = sizeof range;
    heap.typeSpecificDesc = &range;
    heap.messageType = NVTX_MESSAGE_TYPE_ASCII;
    heap.message.ascii = "scratch";
    const nvtxMemHeapHandle_t handle = nvtxMemHeapRegister(domain, &heap);

    nvtxMemVirtualRangeDesc_t regions[4];
    nvtxMemRegionHandle_t handles[4] = {};
    Counted counted;
    counted.reserve(8 * mebibyte);
    for (std::uint64_t i = 0; i < 4; ++i) {
        regions[i] = {(i + 1) * 1000, pointer(memory + i * mebibyte)};
        counted.take((i + 1) * 1000);
    }
    nvtxMemRegionsRegisterBatch_t batch{};
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof batch;
    batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    batch.heap = handle;
    batch.regionCount = 4;
    batch.regionDescElementSize = sizeof regions[0];
    batch.regionDescElements = regions;
    batch.regionHandleElementsOut = handles;
    nvtxMemRegionsRegister(domain, &batch);

    nvtxMemRegionsResizeBatch_t resize{};
    resize.extCompatID = NVTX_EXT_COMPATID_MEM;
    resize.structSize = sizeof resize;
    resize.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    regions[0].size = 5000;
    resize.regionDescCount = 1;
    resize.regionDescElementSize = sizeof regions[0];
    resize.regionDescElements = regions;
    nvtxMemRegionsResize(domain, &resize);
    counted.give(1000);
    counted.take(5000);

    nvtxMemRegionRef_t references[1];
    references[0].pointer = pointer(memory + mebibyte);
    nvtxMemRegionsUnregisterBatch_t unregister{};
    unregister.extCompatID = NVTX_EXT_COMPATID_MEM;
    unregister.structSize = sizeof unregister;
    unregister.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    unregister.refCount = 1;
    unregister.refElementSize = sizeof references[0];
    unregister.refElements = references;
    nvtxMemRegionsUnregister(domain, &unregister);
    counted.give(2000);
    memlab_mark("regions");
    counted.print("LIB:scratch at its mark");

    nvtxMemHeapReset(domain, handle);
    counted = {0, counted.peak, 0, counted.reserved_peak, counted.blocks, 0};
    // A heap that only describes a layout has no allocations.
    heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_LAYOUT;
    batch.heap = nvtxMemHeapRegister(domain, &heap);
    nvtxMemRegionsRegister(domain, &batch);
    nvtxMemHeapUnregister(domain, batch.heap);
    nvtxMemHeapUnregister(domain, handle);
    counted.print("LIB:scratch on GPU 0");
    release(memory);
}

/// What is no block of device memory is not recorded, and so many names are not.
void refused() {
    static char host[64];
    const CUdeviceptr memory = allocate(mebibyte);
    int refusals = 0;
    refusals += memlab_suballoc("host", host, sizeof host) == -1;
    refusals += memlab_suballoc("null", nullptr, 1) == -1;
    refusals += memlab_suballoc("empty", pointer(memory), 0) == -1;
    refusals += memlab_suballoc("PyTorch", pointer(memory), 512) == -1;
    refusals += memlab_subfree("nobody", pointer(memory)) == -1;
    SAY("%d refusals\n", refusals);
    for (int i = 0; i < 40; ++i) {
        (void)memlab_suballoc(("arena " + std::to_string(i)).c_str(), pointer(memory), 512);
    }
}

/// NVTX's memory extension as a draft of its header has it: other functions in the slots.
void draft() {
    using Initialize = int (*)(nvtxExtModuleInfo_t*);
    const auto initialize =
        reinterpret_cast<Initialize>(dlsym(RTLD_DEFAULT, "InitializeInjectionNvtxExtension"));
    intptr_t slots[17] = {};
    nvtxExtModuleSegment_t segment{};
    segment.slotCount = 17;
    segment.functionSlots = slots;
    nvtxExtModuleInfo_t module{};
    module.structSize = sizeof module;
    module.moduleId = 1;  // NVTX_EXT_MODULEID_MEM
    module.compatId = NVTX_EXT_COMPATID_MEM;
    module.segmentsCount = 1;
    module.segments = &segment;
    const bool refused = initialize == nullptr || initialize(&module) == 0;
    SAY("refused: %s\n", refused && slots[3] == 0 ? "yes" : "no");
}

void threads() {
    std::vector<std::thread> all;
    for (unsigned i = 0; i < 4; ++i) {
        all.emplace_back([i] {
            use_device();
            for (int turn = 0; turn < 20; ++turn) {
                const CUdeviceptr memory = allocate(2 * mebibyte);
                Arena arena(i % 2 == 0 ? "even" : "odd", memory, 2 * mebibyte);
                work(arena, i, 60);
                release(memory);
            }
        });
    }
    for (std::thread& thread : all) {
        thread.join();
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argc == 2 ? argv[1] : "";
    const std::map<std::string_view, void (*)()> modes = {
        {"api", [] { api(false); }}, {"api_vmm", [] { api(true); }},
        {"nested", nested},          {"nvtx", nvtx},
        {"refused", refused},        {"draft", draft},
        {"threads", threads}};
    const auto mode = modes.find(what);
    if (mode == modes.end()) {
        return 2;
    }
    use_device();
    mode->second();
    return 0;
}
