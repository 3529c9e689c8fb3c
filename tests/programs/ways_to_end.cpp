// Three allocations of 1,000,000 bytes, one free, and then the end in the way that the argument
// names.
//
// Recorded: 3 device allocations, 1 free, 2 live, however the program ended. Where the process had
// no chance to write its report, the event log has it all.
#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "program.hpp"

using namespace program;

namespace {

void* nothing_more(void*) {
    return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    const char* way = argc == 2 ? argv[1] : "";
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);

    use_device();
    const CUdeviceptr first = allocate(1000000);
    allocate(1000000);
    allocate(1000000);
    release(first);
    SAY("ending by %s\n", way);

    if (std::strcmp(way, "return") == 0) {
        return 7;
    }
    if (std::strcmp(way, "exit") == 0) {
        std::exit(8);
    }
    if (std::strcmp(way, "_exit") == 0) {
        ::_exit(9);
    }
    if (std::strcmp(way, "quick_exit") == 0) {
        std::quick_exit(10);
    }
    if (std::strcmp(way, "abort") == 0) {
        std::abort();
    }
    if (std::strcmp(way, "sigkill") == 0) {
        ::kill(::getpid(), SIGKILL);
    }
    if (std::strcmp(way, "sigterm") == 0) {
        ::kill(::getpid(), SIGTERM);
    }
    if (std::strcmp(way, "sigsegv") == 0) {
        ::raise(SIGSEGV);
    }
    if (std::strcmp(way, "throw") == 0) {
        throw std::runtime_error("nobody catches this");
    }
    if (std::strcmp(way, "pthread_exit") ==
        0) {  // main's thread ends, another one ends the process
        pthread_t thread{};
        ::pthread_create(&thread, nullptr, nothing_more, nullptr);
        ::pthread_detach(thread);
        ::pthread_exit(nullptr);
    }
    ::dprintf(STDERR_FILENO, "usage: %s WAY\n", argv[0]);
    return 2;
}
