// Bounds of readable stack memory.
//
// With correct tables an unwinder never leaves the stack. Wrong tables or hand-made frames could
// lead it anywhere, so every address is checked before it is read; a walk ends at an unreadable
// one.
//
// The bounds of the thread's own stack are cached. The upper one is the thread control block (glibc
// puts it on top of the stacks that it allocates and of those that it is given) or, on the main
// thread, the initial stack pointer. The lower one is extended page by page with a system call that
// only reads eight bytes (rt_sigprocmask with an invalid `how`). pthread_getattr_np would give the
// same, but takes locks and allocates. From then on the check is a comparison. Of other stacks (a
// coroutine's, a signal's) neither bounds nor lifetime are known, so each page that a walk enters
// is probed again: 0.1 us per page.
#pragma once

#include <cstddef>
#include <cstdint>

/// For functions that read stack words outside of their own objects: AddressSanitizer puts poisoned
/// redzones between a function's variables. And ThreadSanitizer has no shadow for an address that
/// is readable, but none of the program's.
#define MEMLAB_READS_STACK __attribute__((no_sanitize_address, no_sanitize_thread))

namespace memlab::profiler::unwind {

constexpr std::size_t page_size = 4096;

/// A system call that is no cancellation point and preserves errno.
long raw_syscall(long number, std::uintptr_t first, std::uintptr_t second, std::uintptr_t third,
                 std::uintptr_t fourth, std::uintptr_t fifth = 0, std::uintptr_t sixth = 0);

/// Whether the eight bytes at `address` can be read. A system call; preserves errno.
bool is_readable(std::uintptr_t address);

/// [low, high): the known readable part of the calling thread's own stack; extended downwards on
/// use. Safe against signal handlers: each word is written whole, `low` only after a probe.
struct OwnStack {
    volatile std::uintptr_t low;
    volatile std::uintptr_t high;
};
__attribute__((tls_model("initial-exec"))) extern constinit thread_local OwnStack own_stack;

/// The readable range around one stack pointer, during one walk on the calling thread.
class StackMemory {
  public:
    /// An empty range: every word is probed before it is read.
    StackMemory() = default;

    /// `sp` points into a stack. All functions are async-signal-safe.
    explicit StackMemory(std::uintptr_t sp) { move_to(sp); }

    /// Moves the range to the stack of `sp`. False if `sp` cannot be read.
    bool move_to(std::uintptr_t sp) {
        const std::uintptr_t low = own_stack.low;
        const std::uintptr_t high = own_stack.high;
        if (sp >= low && sp < high) [[likely]] {
            low_ = low;
            high_ = high;
            on_own_stack_ = true;
            return true;
        }
        return move_to_other(sp);
    }

    /// [low(), high()) can be read.
    std::uintptr_t low() const { return low_; }
    std::uintptr_t high() const { return high_; }

    /// Extends the range up to `to`; false unless [from, to) can be read. On stacks other than the
    /// thread's own, pages below `from` may drop out of the range.
    bool extend(std::uintptr_t to, std::uintptr_t from) {
        return to <= high_ || (!on_own_stack_ && probe_pages(to, from));
    }

    /// Reads the word at any address; false if it is unreadable.
    bool read(std::uintptr_t address, std::uintptr_t* value) const;

  private:
    bool move_to_other(std::uintptr_t sp);
    bool probe_pages(std::uintptr_t to, std::uintptr_t from);

    std::uintptr_t low_ = 0;
    std::uintptr_t high_ = 0;
    bool on_own_stack_ = false;
};

/// Reads the word at any address by a system call, so that no other thread can unmap it between a
/// look and the read; false if it is unreadable. Slower than StackMemory, and no better where the
/// kernel or a sandbox has no process_vm_readv. Async-signal-safe.
bool read_at_once(std::uintptr_t address, std::uintptr_t* value);

}  // namespace memlab::profiler::unwind
