// The heap's code is all of the object that malloc is found in, the C library's most often; and the
// C library's in any case, which another heap calls for its memory and its locks. What of the C
// library belongs to the heap cannot be told: its functions have no names. But most handlers come
// while their thread waits in a system call, for input, a time, another thread: the call is then
// about to be made again, or says EINTR. Those that the heap makes are none of them.
#include "interpose/process/interrupted_heap.hpp"

#include <gnu/libc-version.h>
#include <link.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "interpose/driver/loader.hpp"
#include "profiler/unwind/walk.hpp"

namespace memlab::interpose {
namespace {

using profiler::unwind::Interrupted;

constexpr std::uintptr_t syscall_size = 2;

bool is_system_call(std::uintptr_t address) {
    constexpr std::array<unsigned char, syscall_size> system_call{0x0f, 0x05};
    return std::memcmp(reinterpret_cast<const void*>(address), system_call.data(),
                       system_call.size()) == 0;
}

bool waits(const Interrupted& at, bool own_heap_of_libc) {
    if (at.rax == static_cast<std::uintptr_t>(-EINTR)) {
        return is_system_call(at.instruction - syscall_size);
    }
    constexpr std::array<std::uintptr_t, 6> of_the_heap{SYS_mmap, SYS_mprotect, SYS_munmap,
                                                        SYS_brk,  SYS_mremap,   SYS_madvise};
    return is_system_call(at.instruction) &&
           std::find(of_the_heap.begin(), of_the_heap.end(), at.rax) == of_the_heap.end() &&
           // Another heap may wait for a lock while it holds one.
           (own_heap_of_libc || at.rax != SYS_futex);
}

}  // namespace

bool heap_may_be_interrupted() {
    Interrupted at{};
    if (!profiler::unwind::find_interrupted(&at)) {
        return false;
    }
    const void* const interrupted = object_of(reinterpret_cast<const void*>(at.instruction));
    if (interrupted == nullptr) {
        return false;
    }
    const void* const libc = object_of(reinterpret_cast<const void*>(&gnu_get_libc_version));
    const void* const heap = object_of(reinterpret_cast<const void*>(&std::malloc));
    const void* const loader = object_of(&_r_debug);
    return (interrupted == libc && !waits(at, heap == libc)) ||
           (interrupted == heap && heap != libc) || interrupted == loader;
}

}  // namespace memlab::interpose
