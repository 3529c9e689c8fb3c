#include "interpose/driver/reentrancy.hpp"

#include <csignal>
#include <cstdint>

extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));
}

namespace memlab::interpose {
namespace {

// Stack address at which the calling thread entered memlab; 0: outside.
__attribute__((tls_model("initial-exec"))) thread_local std::uintptr_t entered_at = 0;

/// Stacks grow down, so nested calls have lower addresses. A signal handler on an alternate stack
/// may be anywhere.
bool is_inside(std::uintptr_t here) {
    if (here < entered_at) {
        return true;
    }
    stack_t alternate{};
    return sigaltstack(nullptr, &alternate) != 0 || (alternate.ss_flags & SS_ONSTACK) != 0;
}

}  // namespace

[[gnu::hot]] InsideMemlab::InsideMemlab()
    : nested_(entered_at != 0 && is_inside(reinterpret_cast<std::uintptr_t>(this))) {
    if (!nested_) {
        entered_at = reinterpret_cast<std::uintptr_t>(this);
    }
}

[[gnu::hot]] InsideMemlab::~InsideMemlab() {
    if (!nested_) {
        entered_at = 0;
    }
}

bool thread_is_inside_memlab() {
    return entered_at != 0;
}

void forget_inside_after_fork() {
    entered_at = 0;
}

bool is_own_export(const void* address) {
    const auto value = reinterpret_cast<std::uintptr_t>(address);
    return value >= reinterpret_cast<std::uintptr_t>(__ehdr_start) &&
           value < reinterpret_cast<std::uintptr_t>(etext);
}

}  // namespace memlab::interpose
