// A signal handler that allocates and frees, also what the thread had allocated before, and that
// runs when its thread is in the middle of memlab's own code: whatever lock memlab holds there, the
// handler must not wait for it. (A handler that interrupts the driver itself would wait for the
// driver's locks, with memlab or without; so the handler looks where its thread was.)
//
//   reenter TIMES    until the handler has allocated that often, and freed the thread's block a
//                    quarter as often (several signals may meet one call); without memlab it never
//                    does either
//
// Recorded: all of the main program's allocations and their frees, the handler's too; what the
// handler asked for in the middle of a call went to the driver.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "memlab_code.hpp"
#include "program.hpp"

using namespace program;

namespace {

MemlabCode memlab_code;
std::atomic<int> reentered{0};
std::atomic<const char*> failure{nullptr};
// Allocated by the thread, for the handler to free.
std::atomic<CUdeviceptr> offered{0};
std::atomic<int> taken{0};

void on_signal(int, siginfo_t*, void* context) {
    if (!memlab_code.was_interrupted(context)) {
        return;
    }
    const int interrupted_errno = errno;
    CUdeviceptr address = 0;
    if (cuMemAlloc(&address, 3000) != CUDA_SUCCESS || cuMemFree(address) != CUDA_SUCCESS) {
        failure = "the handler's own block";
    }
    if (const CUdeviceptr block = offered.exchange(0)) {
        CUdeviceptr base = 0;
        if (cuMemFree(block) != CUDA_SUCCESS) {
            failure = "freeing the thread's block";
        }
        if (cuMemFree(block) != CUDA_ERROR_INVALID_VALUE) {
            failure = "freeing it again";
        }
        if (cuMemGetAddressRange(&base, nullptr, block) == CUDA_SUCCESS) {
            failure = "looking for what was freed";
        }
        ++taken;
    }
    ++reentered;
    errno = interrupted_errno;
}

}  // namespace

int main(int argc, char** argv) {
    const int times = argc == 2 ? std::atoi(argv[1]) : 1;
    memlab_code.find();
    use_device();
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigaction(SIGUSR1, &action, nullptr);

    const pthread_t main_thread = ::pthread_self();
    std::atomic<bool> over{false};
    std::thread sender([&] {
        while (!over) {
            ::pthread_kill(main_thread, SIGUSR1);
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    });
    for (int pair = 0;
         memlab_code.is_there() ? reentered < times || taken < times / 4 : pair < 1000; ++pair) {
        if (offered == 0) {
            offered = allocate(1 << 20);
        }
        release(allocate(1 + static_cast<std::size_t>(pair % 5000)));
    }
    over = true;
    sender.join();
    if (const CUdeviceptr block = offered.exchange(0)) {
        release(block);
    }
    const char* const failed = failure;
    SAY("%s\n", failed != nullptr ? failed : "done");
    return failed != nullptr ? 1 : 0;
}
