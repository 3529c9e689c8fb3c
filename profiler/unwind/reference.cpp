#include "profiler/unwind/reference.hpp"

#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "profiler/unwind/frame_step.hpp"

namespace memlab::profiler::unwind {
namespace {

struct Walk {
    CapturedStack* stack;
    std::size_t limit;
    Bytes excluded;
    bool within;  // the next frame is walk_stack_as_libgcc()'s own
};

_Unwind_Reason_Code step(_Unwind_Context* context, void* argument) {
    auto* walk = static_cast<Walk*>(argument);
    CapturedStack& stack = *walk->stack;
    const std::uintptr_t address = _Unwind_GetIP(context);
    if (walk->within) {
        walk->within = false;
        return _URC_NO_REASON;
    }
    // _Unwind_GetCFA gives the CFA of the callee's frame. For a frame interrupted by a signal it
    // reads as if the signal frame ended there.
    if (stack.depth != 0) {
        stack.ends[stack.depth - 1] = _Unwind_GetCFA(context);
    }
    if (address == 0) {
        return _URC_END_OF_STACK;
    }
    if (walk->excluded.contains(address)) {
        return _URC_NO_REASON;
    }
    walk->excluded = {};
    if (stack.depth == walk->limit) {
        stack.truncated = true;
        return _URC_END_OF_STACK;
    }
    stack.addresses[stack.depth] = address;
    stack.ends[stack.depth++] = UINTPTR_MAX;
    return _URC_NO_REASON;
}

using Source = UnwindInfo::Source;

Source source_at(std::uintptr_t return_address) {
    UnwindInfo info;
    find_unwind_info(return_address - 1, return_address, &info);
    return info.source;
}

constinit std::atomic<unsigned long> stacks_verified{0};
constinit std::atomic<unsigned long> frames_verified{0};

void print(const char* title, const StackView& stack) {
    std::fprintf(stderr, "%s: %zu frames%s\n", title, stack.depth,
                 stack.truncated ? ", truncated" : "");
    for (std::size_t i = 0; i < stack.depth; ++i) {
        std::fprintf(stderr, "  %3zu %#18lx ends at %#18lx\n", i, stack.addresses[i],
                     stack.ends[i]);
    }
}

}  // namespace

__attribute__((noinline)) void walk_stack_as_libgcc(CapturedStack& stack, std::size_t limit,
                                                    Bytes excluded) {
    stack.depth = 0;
    stack.truncated = false;
    Walk walk{&stack, limit, excluded, true};
    _Unwind_Backtrace(step, &walk);
}

bool are_equal(const StackView& walked, const StackView& by_libgcc) {
    const std::size_t depth = std::min(walked.depth, by_libgcc.depth);
    const bool goes_on = walked.depth > depth;
    if (by_libgcc.depth > depth + 1 ||
        (by_libgcc.depth > depth &&
         (!walked.ends_early || source_at(by_libgcc.addresses[depth]) != Source::no_code)) ||
        (goes_on && (depth == 0 || source_at(by_libgcc.addresses[depth - 1]) == Source::tables)) ||
        (walked.depth == by_libgcc.depth && walked.truncated != by_libgcc.truncated)) {
        return false;
    }
    for (std::size_t i = 0; i < depth; ++i) {
        const bool last = i + 1 == depth && (goes_on || walked.ends[i] == UINTPTR_MAX);
        if (walked.addresses[i] != by_libgcc.addresses[i] ||
            (walked.ends[i] != by_libgcc.ends[i] && !last)) {
            return false;
        }
    }
    return true;
}

void verify_walk(const StackView& stack, std::size_t limit, Bytes excluded) {
    CapturedStack reference;
    walk_stack_as_libgcc(reference, limit, excluded);
    if (!are_equal(stack, reference)) {
        print("memlab's unwinder", stack);
        print("libgcc's", reference);
        std::abort();
    }
    stacks_verified.fetch_add(1, std::memory_order_relaxed);
    frames_verified.fetch_add(stack.depth, std::memory_order_relaxed);
}

VerifiedWalks verified_walks() {
    return {stacks_verified.load(), frames_verified.load()};
}

}  // namespace memlab::profiler::unwind
