// Threads that are ended from outside, or by themselves, where they allocate.
//
//   cancelled TIMES     pthread_cancel() of a thread that allocates, grows the pool and frees
//                       without a pause; a cleanup handler frees what it then holds
//
// Recorded: an allocation of 5000 bytes for each thread and one at the end, all freed, and what the
// threads did.
#include <pthread.h>

#include <atomic>

#include "program.hpp"

using namespace program;

namespace {

CUcontext context;
std::atomic<bool> running;

void give_back(void* address) {
    release(static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(address)));
}

void* work(void*) {
    CHECK(cuCtxSetCurrent(context));
    const CUdeviceptr held = allocate(5000);
    pthread_cleanup_push(give_back, reinterpret_cast<void*>(static_cast<std::uintptr_t>(held)));
    running = true;
    // Whatever memlab does in between, it is not there that the thread ends.
    for (std::size_t i = 1;; ++i) {
        const CUdeviceptr small = allocate(4096);
        if (i % 512 == 0) {
            release(allocate((std::size_t{32} << 20) + i));
        }
        release(small);
        if (i % 8192 == 0) {
            ::pthread_testcancel();
        }
    }
    pthread_cleanup_pop(0);
    return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    const int times = argc == 2 ? std::atoi(argv[1]) : 1;
    context = use_device();
    int cancelled = 0;
    for (int i = 0; i < times; ++i) {
        pthread_t thread{};
        running = false;
        ::pthread_create(&thread, nullptr, work, nullptr);
        while (!running) {
            ::usleep(100);
        }
        ::usleep(static_cast<useconds_t>(500 + i % 7 * 300));
        ::pthread_cancel(thread);
        void* result = nullptr;
        ::pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED ? 1 : 0;
    }
    release(allocate(5000));
    SAY("%d of %d cancelled\n", cancelled, times);
    return 0;
}
