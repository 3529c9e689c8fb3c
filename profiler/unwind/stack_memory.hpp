// What of the stack may be read.
//
// With right tables an unwinder never leaves the stack. Code that lies about itself, or a frame
// made by hand whose return address is somebody's function, would lead it anywhere; so every
// address is checked before it is read, and a walk that cannot go on ends.
//
// The thread's own stack is learned once: it ends at the thread's control block (glibc puts that on
// top of the stacks that it makes and of those it is given) or, on the main thread, where the
// kernel began it, and from there down page after page is tried with a system call that does
// nothing but read eight bytes (rt_sigprocmask with a `how` that it refuses). pthread_getattr_np
// would tell the same, but takes locks and memory. From then on the check is a comparison. On any
// other stack (a coroutine's, a signal's) nothing says where it ends or how long it stays mapped,
// so each page that a walk enters is tried again: 0.1 us a page, and always right.
#pragma once

#include <cstddef>
#include <cstdint>

/// For the few functions that look at stack words which are no object of theirs. AddressSanitizer
/// puts forbidden zones between a function's variables.
#define MEMLAB_READS_STACK __attribute__((no_sanitize_address))

namespace memlab::profiler::unwind {

constexpr std::size_t page_size = 4096;

/// A system call that is no cancellation point and leaves errno as it is.
long plain_system_call(long number, std::uintptr_t first, std::uintptr_t second,
                       std::uintptr_t third, std::uintptr_t fourth);

/// True when the eight bytes at `address` can be read. A system call; errno stays as it is.
bool is_readable(std::uintptr_t address);

/// [low, high): what is known of the calling thread's own stack. Its lower part is learned as it is
/// used. A signal handler may be at it too: each word is written whole, and `low` only with what
/// was tried.
struct OwnStack {
    volatile std::uintptr_t low;
    volatile std::uintptr_t high;
};
__attribute__((tls_model("initial-exec"))) extern constinit thread_local OwnStack own_stack;

/// The readable range around one stack pointer, during one walk on the calling thread.
class StackMemory {
  public:
    /// Around none: each word is tried before it is read.
    StackMemory() = default;

    /// `sp` points into a stack. Async-signal-safe, as all of this class.
    explicit StackMemory(std::uintptr_t sp) { move_to(sp); }

    /// The walk has come to another stack. False when `sp` cannot be read.
    bool move_to(std::uintptr_t sp) {
        const std::uintptr_t low = own_stack.low;
        const std::uintptr_t high = own_stack.high;
        if (sp >= low && sp < high) [[likely]] {
            low_ = low;
            high_ = high;
            on_own_stack_ = true;
            return true;
        }
        return move_to_unknown(sp);
    }

    /// [low(), high()) can be read.
    std::uintptr_t low() const { return low_; }
    std::uintptr_t high() const { return high_; }

    /// Makes the range reach `to` if it can be read from `from` on, which is all that is needed of
    /// it below `to`; on another stack than the thread's own, what is far below that may drop out
    /// of the range.
    bool extend(std::uintptr_t to, std::uintptr_t from) {
        return to <= high_ || (!on_own_stack_ && try_pages(to, from));
    }

    /// The word at any address at all, if it can be read.
    bool read(std::uintptr_t address, std::uintptr_t* value) const;

  private:
    bool move_to_unknown(std::uintptr_t sp);
    bool try_pages(std::uintptr_t to, std::uintptr_t from);

    std::uintptr_t low_ = 0;
    std::uintptr_t high_ = 0;
    bool on_own_stack_ = false;
};

}  // namespace memlab::profiler::unwind
