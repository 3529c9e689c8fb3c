// What the driver tells of a pointer: an allocation is its own, with its own base, its requested
// size and its own buffer id, whatever serves it.
//
// Recorded: 3 device allocations (100, 100 and 5,000,000 bytes), 3 frees.
#include "program.hpp"

using namespace program;

namespace {

void describe(const char* name, CUdeviceptr block, std::size_t offset) {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    CHECK(cuMemGetAddressRange(&base, &size, block + offset));
    std::size_t range_size = 0;
    CUdeviceptr range_start = 0;
    int type = 0;
    CHECK(cuPointerGetAttribute(&range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block + offset));
    CHECK(
        cuPointerGetAttribute(&range_start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block + offset));
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + offset));
    SAY("%s + %zu: base %s, size %zu, range start %s, range size %zu, type %d\n", name, offset,
        base == block ? "right" : "wrong", size, range_start == block ? "right" : "wrong",
        range_size, type);
}

unsigned long long buffer_id(CUdeviceptr address) {
    unsigned long long id = 0;
    CHECK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    return id;
}

}  // namespace

int main() {
    use_device();
    const CUdeviceptr first = allocate(100);
    const CUdeviceptr second = allocate(100);
    const CUdeviceptr large = allocate(5000000);
    describe("first", first, 0);
    describe("first", first, 99);
    describe("second", second, 0);
    describe("large", large, 4999999);
    SAY("buffer ids differ: %s\n", buffer_id(first) != buffer_id(second) ? "yes" : "no");
    SAY("buffer id is the block's: %s\n",
        buffer_id(large) == buffer_id(large + 4096) ? "yes" : "no");

    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
    std::size_t range_size = 0;
    unsigned memory_type = 0;
    unsigned managed = 7;
    void* values[] = {&range_size, &memory_type, &managed};
    CHECK(cuPointerGetAttributes(3, names, values, second + 50));
    SAY("cuPointerGetAttributes: %zu, %u, %u\n", range_size, memory_type, managed);

    release(first);
    release(second);
    release(large);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    SAY("cuMemGetAddressRange after the free: %s\n",
        cuMemGetAddressRange(&base, &size, large) == CUDA_SUCCESS ? "answered" : "refused");
    return 0;
}
