// A program that locks itself up once it has what it needs: from then on the kernel refuses, with
// EPERM or ENOSYS, what it has no use for itself.
//
// Recorded: 20,000 allocations, all freed.
#include <cuda.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "program.hpp"

using namespace program;

namespace {

constexpr unsigned refused[] = {
    SYS_fallocate, SYS_pwritev,   SYS_process_vm_readv, SYS_fstatfs, SYS_pwritev2, SYS_clone3,
    SYS_socket,    SYS_unlinkat,  SYS_rename,           SYS_prctl,   SYS_readlink, SYS_sched_yield,
    SYS_poll,      SYS_getrandom, SYS_madvise,
};

void lock_up(unsigned error) {
    std::vector<sock_filter> filter;
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
    for (const unsigned number : refused) {
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        SAY("no filter\n");
    }
}

void allocate_and_free(int times) {
    for (int i = 0; i < times; ++i) {
        release(allocate(4096));
    }
}

}  // namespace

int main(int argc, char** argv) {
    use_device();
    allocate_and_free(1000);
    lock_up(argc == 2 && std::strcmp(argv[1], "ENOSYS") == 0 ? ENOSYS : EPERM);
    allocate_and_free(19'000);
    SAY("done\n");
    return 0;
}
