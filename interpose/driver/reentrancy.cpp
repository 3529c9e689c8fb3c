#include "interpose/driver/reentrancy.hpp"

#include <atomic>
#include <csignal>

#include "profiler/unwind/stack_memory.hpp"

extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));
}

namespace memlab::interpose {
namespace {

// The function by which the calling thread entered memlab: the end of its frame (0: outside, and
// the others mean nothing), its return address, and its InsideMemlab.
struct Entry {
    std::uintptr_t frame_end;
    std::uintptr_t return_address;
    const InsideMemlab* object;
};
__attribute__((tls_model("initial-exec"))) constinit thread_local Entry entered{};

/// The slot of a frame that is gone may be anything by now, also what AddressSanitizer guards.
MEMLAB_READS_STACK std::uintptr_t return_address_below(std::uintptr_t frame_end) {
    return *(reinterpret_cast<const std::uintptr_t*>(frame_end) - 1);
}

/// False once the function that entered has been left by a jump and its stack reused. A jump out of
/// a coroutine may have unmapped that stack, so the page is probed first.
bool entry_is_on_stack() {
    return profiler::unwind::is_readable(entered.frame_end - sizeof(std::uintptr_t)) &&
           return_address_below(entered.frame_end) == entered.return_address;
}

/// Stacks grow down, so nested calls have lower frames; where functions are inlined into each
/// other, the same one. A signal handler on an alternate stack may be anywhere.
bool is_inside(std::uintptr_t frame_end, const InsideMemlab* object) {
    if (frame_end < entered.frame_end ||
        (frame_end == entered.frame_end && object != entered.object)) {
        return entry_is_on_stack();
    }
    stack_t alternate{};
    return sigaltstack(nullptr, &alternate) != 0 || (alternate.ss_flags & SS_ONSTACK) != 0;
}

}  // namespace

__attribute__((tls_model("initial-exec"))) constinit thread_local bool left_by_a_jump = false;

[[gnu::hot]] InsideMemlab::InsideMemlab(std::uintptr_t frame_end)
    : nested_(entered.frame_end != 0 && is_inside(frame_end, this)) {
    if (!nested_) {
        if (entered.frame_end != 0) [[unlikely]] {
            left_by_a_jump = true;
            entered.frame_end = 0;
        }
        // A signal handler may enter and leave in between, and puts back what it found.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        earlier_address_ = entered.return_address;
        earlier_object_ = entered.object;
        entered.return_address = return_address_below(frame_end);
        entered.object = this;
        std::atomic_signal_fence(std::memory_order_seq_cst);
        entered.frame_end = frame_end;
    }
}

[[gnu::hot]] InsideMemlab::~InsideMemlab() {
    if (!nested_) {
        entered.frame_end = 0;
        std::atomic_signal_fence(std::memory_order_seq_cst);
        entered.return_address = earlier_address_;
        entered.object = earlier_object_;
    }
}

bool thread_is_inside_memlab() {
    return entered.frame_end != 0 &&
           is_inside(reinterpret_cast<std::uintptr_t>(__builtin_dwarf_cfa()), nullptr);
}

void forget_inside_after_fork() {
    entered.frame_end = 0;
}

bool is_own_export(const void* address) {
    const auto value = reinterpret_cast<std::uintptr_t>(address);
    return value >= reinterpret_cast<std::uintptr_t>(__ehdr_start) &&
           value < reinterpret_cast<std::uintptr_t>(etext);
}

}  // namespace memlab::interpose
