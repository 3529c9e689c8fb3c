#include "profiler/stack_capture.hpp"

#include <unwind.h>

// The linker's bounds of the object that this file is linked into: libmemlab.so, or a test program.
extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));
}

namespace memlab::profiler {
namespace {

struct Walk {
    CapturedStack* stack;
    std::size_t limit;
    bool outside;  // the first frame that is not ours was seen
};

bool is_own(std::uintptr_t address) {
    return address >= reinterpret_cast<std::uintptr_t>(__ehdr_start) &&
           address < reinterpret_cast<std::uintptr_t>(etext);
}

_Unwind_Reason_Code step(_Unwind_Context* context, void* argument) {
    auto* walk = static_cast<Walk*>(argument);
    const std::uintptr_t address = _Unwind_GetIP(context);
    // The unwinder's CFA is where the frame that this one called ends.
    if (walk->stack->depth != 0) {
        walk->stack->ends[walk->stack->depth - 1] = _Unwind_GetCFA(context);
    }
    if (address == 0) {
        return _URC_END_OF_STACK;
    }
    if (!walk->outside) {
        if (is_own(address)) {
            return _URC_NO_REASON;
        }
        walk->outside = true;
    }
    if (walk->stack->depth == walk->limit) {
        walk->stack->truncated = true;
        return _URC_END_OF_STACK;
    }
    walk->stack->ends[walk->stack->depth] = UINTPTR_MAX;
    walk->stack->addresses[walk->stack->depth++] = address;
    return _URC_NO_REASON;
}

}  // namespace

void capture_stack(CapturedStack& stack, std::size_t limit) {
    stack.depth = 0;
    stack.truncated = false;
    Walk walk{&stack, limit < CapturedStack::max_depth ? limit : CapturedStack::max_depth, false};
    _Unwind_Backtrace(step, &walk);
}

}  // namespace memlab::profiler
