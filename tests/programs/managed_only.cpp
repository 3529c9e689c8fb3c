// A program whose memory is all managed: 6 fields of 100 MiB and, five times, 200 MiB of scratch;
// the argument "pinned": 5 arrays of 100 MiB of pinned host memory instead, which are never freed.
//
// Held at the peak, 800 MiB: 600 of field(), 200 of scratch(); 200 of field() are left.
#include <cstring>

#include "program.hpp"

using namespace program;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

[[gnu::noinline]] CUdeviceptr managed(std::size_t bytes) {
    CUdeviceptr address = 0;
    CHECK(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
    return address;
}

[[gnu::noinline]] CUdeviceptr field() {
    const CUdeviceptr address = managed(100 * mib);
    asm volatile("");
    return address;
}

[[gnu::noinline]] CUdeviceptr scratch() {
    const CUdeviceptr address = managed(200 * mib);
    asm volatile("");
    return address;
}

[[gnu::noinline]] void pinned_array() {
    void* address = nullptr;
    CHECK(cuMemHostAlloc(&address, 100 * mib, 0));
}

}  // namespace

int main(int argc, char** argv) {
    use_device();
    if (argc == 2 && std::strcmp(argv[1], "pinned") == 0) {
        for (int i = 0; i < 5; ++i) {
            pinned_array();
        }
        return 0;
    }
    std::vector<CUdeviceptr> fields;
    for (int i = 0; i < 6; ++i) {
        fields.push_back(field());
    }
    for (int i = 0; i < 5; ++i) {
        const CUdeviceptr temporary = scratch();
        CHECK(cuCtxSynchronize());
        CHECK(cuMemFree(temporary));
    }
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(cuMemFree(fields[i]));
    }
    return 0;
}
