#include "profiler/unwind/stack_memory.hpp"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// The main thread's initial stack pointer; exported by the loader.
extern "C" void* __libc_stack_end;

namespace memlab::profiler::unwind {

__attribute__((tls_model("initial-exec"))) constinit thread_local OwnStack own_stack{};

namespace {

// A larger frame is taken for garbage, rather than probing page after page.
constexpr std::size_t max_frame = std::size_t{16} << 20;

// The most that a stack is assumed to grow between two captures. Probing must end somewhere: a read
// below the main thread's stack makes the kernel extend it.
constexpr std::size_t max_probe = std::size_t{64} << 20;

std::uintptr_t page_start(std::uintptr_t address) {
    return address & ~(page_size - 1);
}

void* thread_control_block() {
    void* block;
    __asm__("movq %%fs:0, %0" : "=r"(block));
    return block;
}

std::uintptr_t own_stack_end() {
    const bool main_thread =
        raw_syscall(SYS_gettid, 0, 0, 0, 0) == raw_syscall(SYS_getpid, 0, 0, 0, 0);
    return reinterpret_cast<std::uintptr_t>(main_thread ? __libc_stack_end
                                                        : thread_control_block());
}

bool is_on_own_stack(std::uintptr_t sp) {
    if (own_stack.high == 0) {
        const std::uintptr_t end = own_stack_end();
        if (!is_readable(page_start(end - 1))) {
            return false;
        }
        own_stack.low = page_start(end - 1);
        own_stack.high = end;
    }
    if (sp >= own_stack.high || own_stack.low > sp + max_probe) {
        return false;
    }
    for (std::uintptr_t low = own_stack.low; sp < low;) {
        low -= page_size;
        if (!is_readable(low)) {
            return false;
        }
        own_stack.low = low;
    }
    return true;
}

MEMLAB_READS_STACK std::uintptr_t word_at(std::uintptr_t address) {
    std::uintptr_t value;
    __builtin_memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
    return value;
}

}  // namespace

long raw_syscall(long number, std::uintptr_t first, std::uintptr_t second, std::uintptr_t third,
                 std::uintptr_t fourth, std::uintptr_t fifth, std::uintptr_t sixth) {
    long result = number;
    register std::uintptr_t in_r10 __asm__("r10") = fourth;
    register std::uintptr_t in_r8 __asm__("r8") = fifth;
    register std::uintptr_t in_r9 __asm__("r9") = sixth;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(first), "S"(second), "d"(third), "r"(in_r10), "r"(in_r8), "r"(in_r9)
                     : "rcx", "r11", "memory");
    return result;
}

bool is_readable(std::uintptr_t address) {
    constexpr std::uintptr_t no_such_how = ~std::uintptr_t{0};
    constexpr long fault = -14;  // EFAULT; any other error comes after the read
    if (address == 0) {          // the call takes null for "no set" and reads nothing
        return false;
    }
    return raw_syscall(SYS_rt_sigprocmask, no_such_how, address, 0, 8) != fault;
}

bool StackMemory::move_to_other(std::uintptr_t sp) {
    on_own_stack_ = is_on_own_stack(sp);
    if (on_own_stack_) {
        low_ = own_stack.low;
        high_ = own_stack.high;
        return true;
    }
    low_ = page_start(sp);
    high_ = low_;
    return probe_pages(sp + 1, sp);
}

bool StackMemory::probe_pages(std::uintptr_t to, std::uintptr_t from) {
    if (to - high_ > max_frame || from > to) {
        return false;
    }
    // Skip the inside of a large frame, which is not read: a system call per page would be too
    // slow, repeatedly so if the frame is garbage.
    if (page_start(from) > high_) {
        low_ = page_start(from);
        high_ = low_;
    }
    while (high_ < to) {
        if (!is_readable(high_)) {
            return false;
        }
        high_ += page_size;
    }
    return true;
}

bool StackMemory::read(std::uintptr_t address, std::uintptr_t* value) const {
    const std::uintptr_t last = address + sizeof(std::uintptr_t) - 1;
    if (last < address) {
        return false;
    }
    if ((address < low_ || last >= high_) &&
        (!is_readable(address) ||
         (page_start(last) != page_start(address) && !is_readable(last - 7)))) {
        return false;
    }
    *value = word_at(address);
    return true;
}

bool read_at_once(std::uintptr_t address, std::uintptr_t* value) {
    constexpr long fault = -14;  // EFAULT
    const auto process = static_cast<std::uintptr_t>(raw_syscall(SYS_getpid, 0, 0, 0, 0));
    const iovec to{value, sizeof *value};
    const iovec from{reinterpret_cast<void*>(address), sizeof *value};
    const long size =
        raw_syscall(SYS_process_vm_readv, process, reinterpret_cast<std::uintptr_t>(&to), 1,
                    reinterpret_cast<std::uintptr_t>(&from), 1, 0);
    if (size < 0 && size != fault) {
        return StackMemory().read(address, value);
    }
    return size == sizeof *value;
}

}  // namespace memlab::profiler::unwind
