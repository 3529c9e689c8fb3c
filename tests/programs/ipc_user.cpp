// Allocates pairs of blocks and exports each by cuIpcGetMemHandle, as UCX or MPI would on a
// program's behalf; prints the answers. The argument says when a library of UCX's name is loaded:
// "never", "before" the first use of CUDA, or "later", after the first pair, before the program
// needs more memory than it had. ipc_user_linked refers to that function itself.
//
// Recorded: 6 device allocations, 6 frees.
#include <dlfcn.h>

#include <cstring>
#include <string>
#include <vector>

#include "program.hpp"
#ifndef REFERS_TO_CUIPCGETMEMHANDLE
#include "resolved_ipc.hpp"
#endif

using namespace program;

namespace {

void load_it() {
    if (dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
        SAY("libucp.so.0 cannot be loaded: %s\n", dlerror());
    }
}

void use_pair(const char* when, std::size_t bytes) {
    const CUdeviceptr first = allocate(bytes);
    const CUdeviceptr second = allocate(bytes);
    SAY("%s: bases differ: %s\n", when, first == second ? "no" : "yes");
    release(second);
    release(first);
}

/// Two blocks of one size, the second of which lies inside a segment where there are segments.
void export_pair(const char* when, std::size_t bytes) {
    const CUdeviceptr blocks[] = {allocate(bytes), allocate(bytes)};
    for (const CUdeviceptr block : blocks) {
        CUipcMemHandle handle{};
        SAY("%s: %d\n", when, static_cast<int>(cuIpcGetMemHandle(&handle, block)));
    }
    for (const CUdeviceptr block : blocks) {
        release(block);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string when = argc == 2 ? argv[1] : "never";
    if (when == "before") {
        load_it();
    }
    use_device();
    use_pair("small", 1000);
    if (when == "later") {
        load_it();
    }
    use_pair("large", std::size_t{5} << 20);
    export_pair("export", std::size_t{5} << 20);
    return 0;
}
