// Uses NCCL's communicators: two ranks on one GPU, a thread for each. Built three times: opens
// NCCL, is linked with it, and as a library that is linked with it, for collectives_plugin.cpp.
// Needs the simulated NCCL.
//
//   collectives          each of its calls, one in a group, then the end of both communicators
//   collectives many     five thousand calls for one communicator
//   collectives killed   ends without an end of the communicators
//
// Recorded: 1 device allocation of 1 MiB, 1 free; of each communicator 10 MiB by NCCL.
#include <dlfcn.h>

#include <cstring>
#include <thread>

#include "tests/programs/program.hpp"

using namespace program;

extern "C" {
#define NCCL_FUNCTIONS(DO)                                                           \
    DO(ncclCommInitAll, (void**, int, const int*))                                   \
    DO(ncclAllReduce, (const void*, void*, std::size_t, int, int, void*, void*))     \
    DO(ncclReduce, (const void*, void*, std::size_t, int, int, int, void*, void*))   \
    DO(ncclBroadcast, (const void*, void*, std::size_t, int, int, void*, void*))     \
    DO(ncclBcast, (void*, std::size_t, int, int, void*, void*))                      \
    DO(ncclReduceScatter, (const void*, void*, std::size_t, int, int, void*, void*)) \
    DO(ncclAllGather, (const void*, void*, std::size_t, int, void*, void*))          \
    DO(ncclSend, (const void*, std::size_t, int, int, void*, void*))                 \
    DO(ncclRecv, (void*, std::size_t, int, int, void*, void*))                       \
    DO(ncclGroupStart, ())                                                           \
    DO(ncclGroupEnd, ())                                                             \
    DO(ncclCommFinalize, (void*))                                                    \
    DO(ncclCommSuspend, (void*, int))                                                \
    DO(ncclCommDestroy, (void*))                                                     \
    DO(ncclCommAbort, (void*))

#ifdef LINKED_WITH_NCCL
#define DECLARE(name, parameters) int name parameters;
NCCL_FUNCTIONS(DECLARE)
#endif
}

namespace {

#define POINTER(name, parameters) int(*name##_) parameters = nullptr;
NCCL_FUNCTIONS(POINTER)

void find_functions() {
#ifdef LINKED_WITH_NCCL
#define TAKE(name, parameters) name##_ = &name;
#else
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        SAY("no NCCL: %s\n", dlerror());
        _exit(2);
    }
#define TAKE(name, parameters) name##_ = reinterpret_cast<decltype(name##_)>(dlsym(library, #name));
#endif
    NCCL_FUNCTIONS(TAKE)
}

/// The answers of all calls, one digit each.
void use_all(void* comm, char* buffer, char* answers) {
    const auto answer = [&](int result) { *answers++ = static_cast<char>('0' + result); };
    answer(ncclAllReduce_(buffer, buffer, 1, 0, 0, comm, nullptr));
    answer(ncclReduce_(buffer, buffer, 1, 0, 0, 0, comm, nullptr));
    answer(ncclBroadcast_(buffer, buffer, 1, 0, 0, comm, nullptr));
    answer(ncclBcast_(buffer, 1, 0, 0, comm, nullptr));
    answer(ncclReduceScatter_(buffer, buffer, 1, 0, 0, comm, nullptr));
    answer(ncclAllGather_(buffer, buffer, 1, 0, comm, nullptr));
    answer(ncclGroupStart_());
    answer(ncclGroupStart_());
    answer(ncclSend_(buffer, 1, 0, 0, comm, nullptr));
    answer(ncclRecv_(buffer, 1, 0, 0, comm, nullptr));
    answer(ncclGroupEnd_());
    answer(ncclSend_(nullptr, 1, 0, 0, nullptr, nullptr));
    answer(ncclGroupEnd_());
    answer(ncclGroupEnd_());
    *answers = '\0';
}

}  // namespace

#ifdef AS_LIBRARY
extern "C" __attribute__((visibility("default"))) int collectives_main(int argc, char** argv) {
#else
int main(int argc, char** argv) {
#endif
    const char* const what = argc > 1 ? argv[1] : "";
    find_functions();
    use_device();
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 1 << 20));
    char buffer[64] = "";
    void* comms[2] = {};
    const int devices[2] = {0, 0};
    SAY("made: %d\n", ncclCommInitAll_(comms, 2, devices));
    if (std::strcmp(what, "many") == 0) {
        int failed = 0;
        for (int i = 0; i < 5000; ++i) {
            failed += ncclAllReduce_(buffer, buffer, 1, 0, 0, comms[1], nullptr) != 0 ? 1 : 0;
        }
        SAY("failed: %d\n", failed);
    } else {
        char answers[2][64];
        char buffers[2][64] = {};
        std::thread threads[2];
        for (int i = 0; i < 2; ++i) {
            threads[i] = std::thread(use_all, comms[i], buffers[i], answers[i]);
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        SAY("answers: %s %s\n", answers[0], answers[1]);
    }
    CHECK(cuMemFree(memory));
    if (std::strcmp(what, "killed") == 0) {
        return 0;
    }
    SAY("suspended: %d\n", ncclCommSuspend_(comms[0], 1));
    SAY("ended: %d\n", ncclCommFinalize_(comms[0]));
    SAY("ended: %d\n", ncclCommDestroy_(comms[0]));
    SAY("ended: %d\n", ncclCommAbort_(comms[1]));
    return 0;
}
