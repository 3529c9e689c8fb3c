// subscribes_itself: a program with a profiler of its own that uses CUPTI, when CUDA is long in use
// or before. It must get what it gets without memlab. Prints the answers.
//
// subscribes_itself [NAME OF LIBCUPTI [alone|shared [late|first|attribute|activities]]]
//   shared      it allows for several subscribers
//   late        it subscribes when CUDA is in use (the default)
//   first       before that
//   attribute   late, and it sets an attribute before, which only the first subscriber can
//   activities  it does not subscribe: it has records of memory by the functions that name no
//   subscriber
//
// Recorded: ten allocations by cudaMalloc, freed.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

std::size_t bytes_of_records = 0;

void lend(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
    *size = 1 << 16;
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *size));
    *records = 0;
}

void take(void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    bytes_of_records += valid;
    std::free(buffer);
}

template <class Function>
Function* find(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
}

constexpr int memory2 = 49;  // CUPTI_ACTIVITY_KIND_MEMORY2

void use_activities(void* cupti) {
    std::printf("activity: %d\n", find<int(int)>(cupti, "cuptiActivityEnable")(memory2));
    std::printf("callbacks: %d\n", find<int(decltype(&lend), decltype(&take))>(
                                       cupti, "cuptiActivityRegisterCallbacks")(lend, take));
    std::printf("after: %d\n", allocate(5));
    std::printf("flush: %d\n", find<int(unsigned)>(cupti, "cuptiActivityFlushAll")(1));
    std::printf("records: %s\n", bytes_of_records > 0 ? "some" : "none");
}

}  // namespace

int main(int count, char** arguments) {
    const char* const name = count > 1 ? arguments[1] : "libcupti.so.13";
    const bool shared = count > 2 && std::strcmp(arguments[2], "shared") == 0;
    const char* const when = count > 3 ? arguments[3] : "late";
    const bool first = std::strcmp(when, "first") == 0 || std::strcmp(when, "activities") == 0;
    if (first) {
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    } else {
        std::printf("before: %d\n", allocate(5));
    }
    void* const cupti = dlopen(name, RTLD_NOW);
    if (cupti == nullptr) {
        std::printf("no CUPTI: %s\n", dlerror());
        return 77;
    }
    if (std::strcmp(when, "activities") == 0) {
        use_activities(cupti);
        return 0;
    }
    if (std::strcmp(when, "attribute") == 0) {
        std::size_t size = 1;
        unsigned char value = 0;
        std::printf("attribute: %d\n",
                    find<int(void*, int, std::size_t*, void*)>(
                        cupti, "cuptiActivitySetAttribute_v2")(nullptr, 20, &size, &value));
    }
    using Callback = void (*)(void*, int, unsigned, const void*);
    void* subscriber = nullptr;
    static int calls = 0;
    Parameters parameters{sizeof(Parameters), "test", nullptr, 0, 1, {}};
    std::printf("subscribe: %d\n",
                shared ? find<int(void**, Callback, void*, Parameters*)>(
                             cupti, "cuptiSubscribe_v2")(&subscriber, on_call, &calls, &parameters)
                       : find<int(void**, Callback, void*)>(cupti, "cuptiSubscribe")(
                             &subscriber, on_call, &calls));
    constexpr int runtime_api = 2;
    constexpr unsigned cuda_malloc = 20;  // CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020
    std::printf("enable: %d\n",
                find<int(unsigned, void*, int, unsigned)>(cupti, "cuptiEnableCallback")(
                    1, subscriber, runtime_api, cuda_malloc));
    std::printf("after: %d\n", allocate(first ? 10 : 5));
    std::printf("calls seen: %d\n", calls);
    return 0;
}
