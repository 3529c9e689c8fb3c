// A signal handler that ends the process, as command-line programs have it for SIGINT and SIGTERM,
// while a thread allocates and frees without a pause.
//
//   interrupted exit TIMES        exit()
//   interrupted quick_exit TIMES  quick_exit()
//   interrupted alternate TIMES   exit(), on a signal stack of its own
//   interrupted heap TIMES        exit(), while the thread is in malloc or free
//   interrupted waiting TIMES     exit(), while the thread waits in a system call
//   interrupted other TIMES       exit() by the main thread, while a handler keeps another thread
//                                 forever where it was
//   interrupted thread TIMES      the same, of a thread that its handler ends: pthread_exit()
//
// Runs itself TIMES times. The handler runs when its thread is in memlab's own code (heap: in
// neither memlab's nor the program's); without memlab at any moment. (One that interrupts the
// driver may wait for the driver's locks, with memlab or without.)
//
// Recorded: what went before; where the handler interrupted memlab or the heap, in the event log
// alone.
#include <sys/time.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "memlab_code.hpp"
#include "program.hpp"

using namespace program;

extern "C" const char __executable_start;
extern "C" const char etext;

namespace {

constexpr int max_looks = 3000;

MemlabCode memlab_code;
std::atomic<int> looks{0};
std::atomic<bool> kept{false};
const char* way = "";

/// In this program's code: in the driver's a thread may not be able to end.
bool was_interrupted_here(const void* context) {
    const auto at = MemlabCode::place_of(context);
    return at >= reinterpret_cast<std::uintptr_t>(&__executable_start) &&
           at < reinterpret_cast<std::uintptr_t>(&etext);
}

void on_signal(int, siginfo_t*, void* context) {
    if (std::strcmp(way, "heap") == 0) {
        if (!was_interrupted_here(context) && !memlab_code.was_interrupted(context)) {
            std::exit(0);
        }
        return;
    }
    if (std::strcmp(way, "waiting") == 0) {
        std::exit(0);
    }
    if (std::strcmp(way, "thread") == 0) {
        if (memlab_code.is_there() ? memlab_code.was_interrupted(context)
                                   : was_interrupted_here(context)) {
            kept = true;
            ::pthread_exit(nullptr);
        }
        return;
    }
    if (memlab_code.is_there() && !memlab_code.was_interrupted(context) && ++looks < max_looks) {
        return;
    }
    if (std::strcmp(way, "quick_exit") == 0) {
        std::quick_exit(0);
    }
    if (std::strcmp(way, "other") == 0) {
        kept = true;
        for (;;) {
            ::pause();
        }
    }
    std::exit(0);
}

[[noreturn]] void allocate_for_ever() {
    for (;;) {
        release(allocate(4096));
    }
}

/// Sizes that are nobody's own cache's, but the heap's that all threads share.
[[noreturn]] void use_the_heap() {
    std::array<void*, 64> blocks{};
    for (std::size_t i = 0;; ++i) {
        void*& block = blocks[i * 37 % blocks.size()];
        std::free(block);
        block = std::malloc(2000 + i * 7919 % 60000);
    }
}

int child() {
    memlab_code.find();
    const CUcontext context = use_device();
    allocate(1 << 20);
    static std::array<char, 1 << 16> stack;
    const stack_t alternate{stack.data(), 0, stack.size()};
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    if (std::strcmp(way, "alternate") == 0) {
        ::sigaltstack(&alternate, nullptr);
        action.sa_flags |= SA_ONSTACK;
    }
    ::sigaction(SIGALRM, &action, nullptr);
    const bool ends = std::strcmp(way, "thread") == 0;
    if (ends || std::strcmp(way, "other") == 0) {
        std::thread worker([context] {
            CHECK(cuCtxSetCurrent(context));
            allocate_for_ever();
        });
        while (!kept) {
            ::pthread_kill(worker.native_handle(), SIGALRM);
            ::usleep(200);
        }
        if (ends) {
            worker.join();
        }
        std::exit(0);
    }
    const itimerval often{{0, 200}, {0, 2000}};
    if (std::strcmp(way, "heap") == 0) {
        // Without a second thread the heap needs no lock. It takes no signal: of two threads in
        // exit() one may free the list of handlers that the other one walks.
        sigset_t alarm;
        ::sigemptyset(&alarm);
        ::sigaddset(&alarm, SIGALRM);
        ::pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
        std::thread([] { ::pause(); }).detach();
        ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
        ::setitimer(ITIMER_REAL, &often, nullptr);
        use_the_heap();
    }
    if (std::strcmp(way, "waiting") == 0) {
        const itimerval once{{0, 0}, {0, 200000}};
        ::setitimer(ITIMER_REAL, &once, nullptr);
        for (;;) {
            ::pause();
        }
    }
    ::setitimer(ITIMER_REAL, &often, nullptr);
    allocate_for_ever();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        ::dprintf(STDERR_FILENO, "usage: %s WAY TIMES\n", argv[0]);
        return 2;
    }
    way = argv[1];
    const int times = std::atoi(argv[2]);
    if (times == 0) {
        return child();
    }
    int wrong = 0;
    for (int i = 0; i < times; ++i) {
        const pid_t process = ::fork();
        if (process == 0) {
            ::execl("/proc/self/exe", argv[0], way, "0", static_cast<char*>(nullptr));
            ::_exit(9);
        }
        int status = 0;
        int waited = 0;
        for (; waited < 20000 && ::waitpid(process, &status, WNOHANG) == 0; ++waited) {
            ::usleep(1000);
        }
        if (waited == 20000) {
            ::kill(process, SIGKILL);
            ::waitpid(process, &status, 0);
        }
        wrong += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
    }
    SAY("%d of %d did not end as they should\n", wrong, times);
    return wrong == 0 ? 0 : 1;
}
