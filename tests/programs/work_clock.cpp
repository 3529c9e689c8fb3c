// How many fences memlab records, by what the program submits. Runs on the simulated driver only.
//
//   work_clock [late | table [LIBRARY]]
//
// Prints, for each phase, the calls of cuCtxRecordEvent that reached the driver. With `late` the
// program first resolves a driver function that no header of this CUDA version names, with `table`
// it takes a private table of the driver, or has LIBRARY take it.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "tests/programs/simulated.hpp"

namespace {

constexpr std::size_t bytes = 1 << 20;

std::uint64_t records() {
    static auto* calls = program::control<std::uint64_t(const char*)>("simcuda_calls");
    static std::uint64_t before = 0;
    const std::uint64_t now = calls("cuCtxRecordEvent");
    const std::uint64_t since = now - before;
    before = now;
    return since;
}

void phase(const char* name) {
    SAY("%s: %d\n", name, static_cast<int>(records()));
}

void take_table(const char* library) {
    CUuuid name;
    std::memcpy(name.bytes, SIMCUDA_PRIVATE_TABLE, sizeof(name.bytes));
    if (library == nullptr) {
        const void* table = nullptr;
        CHECK(cuGetExportTable(&table, &name));
        return;
    }
    void* const handle = dlopen(library, RTLD_NOW);
    auto* const take = handle == nullptr ? nullptr : dlsym(handle, "take_table");
    if (take == nullptr) {
        SAY("%s cannot be used\n", library);
        _exit(3);
    }
    CHECK(reinterpret_cast<CUresult (*)(const CUuuid*)>(take)(&name));
}

void pairs(int count) {
    for (int i = 0; i < count; ++i) {
        program::release(program::allocate(bytes));
    }
}

}  // namespace

int main(int argc, char** argv) {
    program::use_device();
    if (argc == 2 && std::strcmp(argv[1], "late") == 0) {
        program::control<int(void)>("cuSimcudaUnlisted");
    }
    if (argc >= 2 && std::strcmp(argv[1], "table") == 0) {
        take_table(argc == 3 ? argv[2] : nullptr);
    }
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    records();

    pairs(10);
    phase("nothing submitted, 10 frees");

    const CUdeviceptr blocks[] = {program::allocate(bytes), program::allocate(bytes),
                                  program::allocate(bytes)};
    CHECK(cuMemsetD8Async(blocks[0], 1, bytes, stream));
    for (const CUdeviceptr block : blocks) {
        program::release(block);
    }
    phase("one memset, 3 frees");

    CHECK(cuCtxSynchronize());
    pairs(10);
    phase("after it completed, 10 frees");

    for (int i = 0; i < 5; ++i) {
        const CUdeviceptr block = program::allocate(bytes);
        CHECK(cuMemsetD8Async(block, 1, bytes, stream));
        program::release(block);
    }
    phase("5 times memset and free");
    CHECK(cuCtxSynchronize());
    return 0;
}
