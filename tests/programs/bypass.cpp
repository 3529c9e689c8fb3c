// bypass [COUNT]: some of a program's memory is allocated by a library that is loaded with
// RTLD_DEEPBIND: its symbols bind to its own dependencies first, so its calls reach the driver past
// whatever was preloaded.
//
// Recorded: three allocations of 1 MiB by cudaMalloc. Bypassed: COUNT (default 2) of 3 MiB each.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 2;
    void* memory[3] = {};
    for (void*& each : memory) {
        if (cudaMalloc(&each, 1 << 20) != cudaSuccess) {
            return 1;
        }
    }
    std::string path = argv[0];
    path.resize(path.rfind('/') + 1);
    void* const library = dlopen((path + "bypassing.so").c_str(), RTLD_NOW | RTLD_DEEPBIND);
    if (library == nullptr) {
        std::printf("%s\n", dlerror());
        return 2;
    }
    const auto allocate = reinterpret_cast<int (*)(int)>(dlsym(library, "allocate_past_preloads"));
    std::printf("bypassing: %d\n", allocate(count));
    for (void* each : memory) {
        cudaFree(each);
    }
    return 0;
}
