// The heap's code is taken to be the whole object that defines malloc (usually the C library), and
// the C library in any case, because other heaps call it for memory and locks. The part of the C
// library that belongs to the heap is unknown, since internal functions have no symbols. But most
// handlers interrupt a waiting system call (input, a timer, another thread), which is then about to
// be restarted or returns EINTR. The heap's own system calls are excluded.
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

bool is_waiting_call(const Interrupted& at, bool libc_has_heap) {
    if (at.rax == static_cast<std::uintptr_t>(-EINTR)) {
        return is_system_call(at.instruction - syscall_size);
    }
    constexpr std::array<std::uintptr_t, 6> heap_calls{SYS_mmap, SYS_mprotect, SYS_munmap,
                                                       SYS_brk,  SYS_mremap,   SYS_madvise};
    return is_system_call(at.instruction) &&
           std::find(heap_calls.begin(), heap_calls.end(), at.rax) == heap_calls.end() &&
           // Another heap may wait for a futex while it holds one of its locks.
           (libc_has_heap || at.rax != SYS_futex);
}

}  // namespace

bool heap_may_be_interrupted() {
    Interrupted at{};
    if (!profiler::unwind::find_interrupted(&at)) {
        return false;
    }
    const void* const interrupted =
        containing_object(reinterpret_cast<const void*>(at.instruction));
    if (interrupted == nullptr) {
        return false;
    }
    const void* const libc =
        containing_object(reinterpret_cast<const void*>(&gnu_get_libc_version));
    const void* const heap = containing_object(reinterpret_cast<const void*>(&std::malloc));
    const void* const loader = containing_object(&_r_debug);
    return (interrupted == libc && !is_waiting_call(at, heap == libc)) ||
           (interrupted == heap && heap != libc) || interrupted == loader;
}

}  // namespace memlab::interpose
