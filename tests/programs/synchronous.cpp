// Makes the memory operations on an allocation synchronous, as programs for GPUDirect RDMA do.
//
// Recorded: 1 device allocation of 3 MiB, 1 free; and that what follows is not pooled.
#include "program.hpp"

int main() {
    program::use_device();
    const CUdeviceptr memory = program::allocate(3 << 20);
    unsigned wanted = 1;
    SAY("set: %d\n", cuPointerSetAttribute(&wanted, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
    unsigned is = 2;
    SAY("get: %d\n", cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
    SAY("is: %u\n", is);
    CHECK(cuMemFree(memory));
    return 0;
}
