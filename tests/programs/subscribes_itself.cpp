// subscribes_itself: a program with a profiler of its own that subscribes to CUPTI when CUDA is
// long in use. It must get it, as it does without memlab. Prints the answers.
//
// subscribes_itself [NAME OF LIBCUPTI [shared]], "shared": it allows for several subscribers
//
// Recorded: ten allocations by cudaMalloc, freed.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>

namespace {

int allocate(int count) {
    int good = 0;
    for (int i = 0; i < count; ++i) {
        void* memory = nullptr;
        if (cudaMalloc(&memory, 1 << 20) == cudaSuccess && cudaFree(memory) == cudaSuccess) {
            ++good;
        }
    }
    return good;
}

struct Parameters {
    std::size_t size;
    const char* name;
    char* old_name;
    std::size_t old_size;
    unsigned char several;
    unsigned char padding[7];
};

void on_call(void* calls, int, unsigned, const void*) {
    ++*static_cast<int*>(calls);
}

}  // namespace

int main(int count, char** arguments) {
    std::printf("before: %d\n", allocate(5));
    void* const cupti = dlopen(count > 1 ? arguments[1] : "libcupti.so.13", RTLD_NOW);
    if (cupti == nullptr) {
        std::printf("no CUPTI: %s\n", dlerror());
        return 77;
    }
    using Subscribe = int (*)(void**, void (*)(void*, int, unsigned, const void*), void*);
    using Share = int (*)(void**, void (*)(void*, int, unsigned, const void*), void*, Parameters*);
    using Enable = int (*)(unsigned, void*, int, unsigned);
    const auto subscribe = reinterpret_cast<Subscribe>(dlsym(cupti, "cuptiSubscribe"));
    const auto enable = reinterpret_cast<Enable>(dlsym(cupti, "cuptiEnableCallback"));
    const auto share = reinterpret_cast<Share>(dlsym(cupti, "cuptiSubscribe_v2"));
    void* subscriber = nullptr;
    static int calls = 0;
    Parameters parameters{sizeof(Parameters), "test", nullptr, 0, 1, {}};
    std::printf("subscribe: %d\n", count > 2 ? share(&subscriber, on_call, &calls, &parameters)
                                             : subscribe(&subscriber, on_call, &calls));
    constexpr int runtime_api = 2;
    constexpr unsigned cuda_malloc = 20;  // CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020
    std::printf("enable: %d\n", enable(1, subscriber, runtime_api, cuda_malloc));
    std::printf("after: %d\n", allocate(5));
    std::printf("calls seen: %d\n", calls);
    return 0;
}
