// A signal handler that ends the process, as command-line programs have it for SIGINT and SIGTERM,
// while a thread allocates and frees without a pause.
//
//   interrupted exit TIMES        exit()
//   interrupted quick_exit TIMES  quick_exit()
//   interrupted alternate TIMES   exit(), on a signal stack of its own
//   interrupted other TIMES       exit() by the main thread, while a handler keeps another thread
//   for
//                                 ever where it was
//   interrupted thread TIMES      the same, of a thread that its handler ends: pthread_exit()
//
// Runs itself TIMES times. The handler comes when its thread is in memlab's own code, if it is
// there; without memlab at any moment. (One that interrupts the driver may wait for the driver's
// locks, with memlab or without.)
//
// Recorded: what went before; where the handler interrupted memlab, in the event log alone.
#include <link.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "program.hpp"

using namespace program;

namespace {

constexpr int most_looks = 3000;

std::uintptr_t code_start = 0;  // of libmemlab.so
std::uintptr_t code_end = 0;
std::atomic<int> looks{0};
std::atomic<bool> kept{false};
const char* way = "";

int find_memlab(dl_phdr_info* info, std::size_t, void*) {
    if (std::strstr(info->dlpi_name, "libmemlab") == nullptr) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = info->dlpi_phdr[i];
        if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0) {
            code_start = info->dlpi_addr + part.p_vaddr;
            code_end = code_start + part.p_memsz;
        }
    }
    return 1;
}

void on_signal(int, siginfo_t*, void* context) {
    const auto at =
        static_cast<std::uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    if (code_end != 0 && (at < code_start || at >= code_end) && ++looks < most_looks) {
        return;
    }
    if (std::strcmp(way, "quick_exit") == 0) {
        std::quick_exit(0);
    }
    if (std::strcmp(way, "thread") == 0) {
        kept = true;
        ::pthread_exit(nullptr);
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

int child() {
    ::dl_iterate_phdr(find_memlab, nullptr);
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
