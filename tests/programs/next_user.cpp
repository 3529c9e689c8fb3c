// Uses the functions that next_wrapper wraps.
//
// Recorded: nothing.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

int main() {
    std::puts("the program was here");
    std::fflush(stdout);
    std::printf("getpid is right: %s\n", ::getpid() == ::syscall(SYS_getpid) ? "yes" : "no");
    return 0;
}
