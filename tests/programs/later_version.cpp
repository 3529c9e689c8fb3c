// Frees with a version of cuMemFree that is later than any header's: the simulated driver of
// CUDA 99.0 has one.
//
//   later_version symbol before     finds it with dlsym, before cuInit
//   later_version address before    by cuGetProcAddress
//   later_version ... after         after the first allocation
#include <cstring>

#include "tests/programs/simulated.hpp"

namespace {

using Free = int (*)(unsigned long long);

Free find(bool by_symbol) {
    if (by_symbol) {
        return program::control<int(unsigned long long)>("cuMemFree_v3");
    }
    void* function = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    CHECK(cuGetProcAddress("cuMemFree", &function, 99000, CU_GET_PROC_ADDRESS_DEFAULT, &found));
    return reinterpret_cast<Free>(function);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        return 2;
    }
    const bool by_symbol = std::strcmp(argv[1], "symbol") == 0;
    const bool before = std::strcmp(argv[2], "before") == 0;
    Free free_memory = before ? find(by_symbol) : nullptr;
    program::use_device();
    CUdeviceptr first = program::allocate(3000);
    program::release(first);
    free_memory = before ? free_memory : find(by_symbol);
    CUdeviceptr blocks[3] = {};
    for (CUdeviceptr& block : blocks) {
        block = program::allocate(5000);
    }
    for (const CUdeviceptr block : blocks) {
        const int freed = free_memory(block);
        SAY("free: %d, again: %d\n", freed, free_memory(block));
    }
    return 0;
}
