// fork in every order with CUDA. The argument names the case:
//   before           the child is forked before CUDA starts and uses none; the parent does.
//                    Recorded: one report, the parent's: 2 allocations, 1 free.
//   after-exit       the child is forked after CUDA started, uses none, ends by exit().
//   after-_exit      the same, it ends by _exit().
//                    Recorded: one report, the parent's: 2 allocations, 1 free; the child, which
//                    ran the exit handlers or not, neither wrote nor changed anything.
//   after-use        the child is forked after CUDA started and tries to allocate. What the driver
//                    answers is printed. Recorded: the parent's report as above.
//   after-many-use   five children are forked after CUDA started; each asks the driver in many
//                    ways, and the last forks a grandchild that does so too. Every answer is
//                    printed.
//                    Recorded: the parent's report as above, and that six processes tried.
//   child            only the child uses CUDA (started in it).
//                    Recorded: one report, the child's: 3 allocations, 3 frees.
//   both             the child uses CUDA, then the parent. Recorded: two reports.
//   many             200 children are forked without CUDA anywhere. Recorded: nothing.
//   many-after       200 children are forked by a parent that uses CUDA.
//                    Recorded: one report, the parent's: 2 allocations, 1 free.
//   after-clone      the child is made by clone() alone, which runs no handler of fork; it
//                    allocates and ends by exit(). Recorded: the parent's report as above.
//   grandchild       a child forked before CUDA forks a grandchild that uses it: one report.
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "program.hpp"

using namespace program;

namespace {

void parents_part(CUdeviceptr first) {
    allocate(700000);
    release(first);
    SAY("parent: 2 allocations, 1 free\n");
}

void childs_part() {
    use_device();
    CUdeviceptr blocks[3];
    for (CUdeviceptr& block : blocks) {
        block = allocate(300000);
    }
    for (CUdeviceptr block : blocks) {
        release(block);
    }
    SAY("child: 3 allocations, 3 frees\n");
}

// What a driver that was started before the fork answers to its child.
void ask_in_vain(const char* who, CUdeviceptr parents) {
    int count = -1;
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    SAY("%s: init %d, count %d, current %d, retain %d, alloc %d, free %d, info %d, wait %d\n", who,
        static_cast<int>(cuInit(0)), static_cast<int>(cuDeviceGetCount(&count)),
        static_cast<int>(cuCtxGetCurrent(&context)),
        static_cast<int>(cuDevicePrimaryCtxRetain(&context, device)),
        static_cast<int>(cuMemAlloc(&address, 1000)), static_cast<int>(cuMemFree(parents)),
        static_cast<int>(cuMemGetInfo(&free_bytes, &total_bytes)),
        static_cast<int>(cuCtxSynchronize()));
}

void wait_for(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
        SAY("child ended by signal %d\n", WTERMSIG(status));
    } else {
        SAY("child ended with %d\n", WEXITSTATUS(status));
    }
}

}  // namespace

int main(int argc, char** argv) {
    const char* what = argc == 2 ? argv[1] : "";
    const auto is = [what](const char* name) { return std::strcmp(what, name) == 0; };

    if (is("before")) {
        const pid_t child = ::fork();
        if (child == 0) {
            SAY("child: no CUDA\n");
            return 5;
        }
        wait_for(child);
        use_device();
        parents_part(allocate(700000));
    } else if (is("after-exit") || is("after-_exit") || is("after-use")) {
        use_device();
        const CUdeviceptr first = allocate(700000);
        const pid_t child = ::fork();
        if (child == 0) {
            if (is("after-use")) {
                CUdeviceptr address = 0;
                SAY("child: cuMemAlloc returned %d\n",
                    static_cast<int>(cuMemAlloc(&address, 1000)));
                ::_exit(5);
            }
            SAY("child: no CUDA of its own\n");
            if (is("after-_exit")) {
                ::_exit(6);
            }
            std::exit(6);
        }
        wait_for(child);
        parents_part(first);
    } else if (is("after-clone")) {
        use_device();
        const CUdeviceptr first = allocate(700000);
        const long child = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
        if (child == 0) {
            CUdeviceptr address = 0;
            SAY("child: cuMemAlloc returned %d\n", static_cast<int>(cuMemAlloc(&address, 1000)));
            std::exit(6);
        }
        wait_for(static_cast<pid_t>(child));
        parents_part(first);
    } else if (is("after-many-use")) {
        use_device();
        const CUdeviceptr first = allocate(700000);
        for (int i = 0; i < 5; ++i) {
            const pid_t child = ::fork();
            if (child == 0) {
                ask_in_vain("child", first);
                if (i == 4) {
                    const pid_t grandchild = ::fork();
                    if (grandchild == 0) {
                        ask_in_vain("grandchild", first);
                        ::_exit(7);
                    }
                    wait_for(grandchild);
                }
                ::_exit(5);
            }
            wait_for(child);
        }
        parents_part(first);
    } else if (is("child") || is("both")) {
        const pid_t child = ::fork();
        if (child == 0) {
            childs_part();
            return 0;
        }
        wait_for(child);
        if (is("both")) {
            use_device();
            parents_part(allocate(700000));
        }
    } else if (is("grandchild")) {
        const pid_t child = ::fork();
        if (child == 0) {
            const pid_t grandchild = ::fork();
            if (grandchild == 0) {
                childs_part();
                return 0;
            }
            wait_for(grandchild);
            return 4;
        }
        wait_for(child);
    } else if (is("many") || is("many-after")) {
        CUdeviceptr first = 0;
        if (is("many-after")) {
            use_device();
            first = allocate(700000);
        }
        int good = 0;
        for (int i = 0; i < 200; ++i) {
            const pid_t child = ::fork();
            if (child == 0) {
                std::exit(i % 100);
            }
            int status = 0;
            ::waitpid(child, &status, 0);
            good += WIFEXITED(status) && WEXITSTATUS(status) == i % 100 ? 1 : 0;
        }
        SAY("%d of 200 children ended as told\n", good);
        if (is("many-after")) {
            parents_part(first);
        }
    } else {
        ::dprintf(STDERR_FILENO, "usage: %s CASE\n", argv[0]);
        return 2;
    }
    return 0;
}
