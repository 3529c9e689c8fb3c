// A program that is sent signals, for MEMLAB_REPORT_ON. It allocates, says "ready" and goes on
// until a signal ends it.
//
//   signalled plain            handles nothing
//   signalled before NUMBER    handles the signal from before the start of CUDA: says so, goes on
//   signalled after NUMBER     the same from after the start of CUDA
//   signalled ignore NUMBER    ignores the signal
//   signalled fork NUMBER      its child, which uses no CUDA, sends itself the signal; says how it
//                              ended, then goes on
//   signalled exec             replaces itself by "sleep 60" once it is ready
//   signalled busy             two threads allocate and free without a pause
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <string>
#include <thread>

#include "program.hpp"

using namespace program;

namespace {

void handler(int signal) {
    SAY("handled %d\n", signal);
}

void handle(int signal) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigaction(signal, &action, nullptr);
}

void allocate_without_a_pause(CUcontext context) {
    CHECK(cuCtxSetCurrent(context));
    for (;;) {
        release(allocate(100000));
    }
}

void say_how_a_child_ends(int signal) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::raise(signal);
        ::_exit(7);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    SAY("the child ended by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        return 2;
    }
    const std::string mode = argv[1];
    const int signal = argc > 2 ? std::atoi(argv[2]) : 0;
    if (mode == "before") {
        handle(signal);
    } else if (mode == "ignore") {
        ::signal(signal, SIG_IGN);
    }
    const CUcontext context = use_device();
    const CUdeviceptr kept = allocate(3 << 20);
    if (mode == "after") {
        handle(signal);
    } else if (mode == "fork") {
        say_how_a_child_ends(signal);
    }
    std::thread first;
    std::thread second;
    if (mode == "busy") {
        first = std::thread(allocate_without_a_pause, context);
        second = std::thread(allocate_without_a_pause, context);
    }
    SAY("ready\n");
    if (mode == "exec") {
        ::execlp("sleep", "sleep", "60", nullptr);
        return 3;
    }
    for (int i = 0; i < 60000; ++i) {
        release(allocate(1000));
        ::usleep(1000);
    }
    release(kept);
    return 0;
}
