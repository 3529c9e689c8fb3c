#include "profiler/stack_capture.hpp"

#include <algorithm>

#include "profiler/unwind/walk.hpp"
#ifdef MEMLAB_VERIFY_UNWIND
#include "profiler/unwind/reference.hpp"
#endif

// Linker-defined bounds of the object that contains this file: libmemlab.so or a test program.
extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));
}

namespace memlab::profiler {

__attribute__((tls_model("initial-exec"))) constinit thread_local bool serves_origins = false;

[[gnu::hot]] unwind::Bytes own_code() {
    return {reinterpret_cast<std::uintptr_t>(__ehdr_start),
            reinterpret_cast<std::uintptr_t>(etext)};
}

bool verifies_stacks() {
#ifdef MEMLAB_VERIFY_UNWIND
    return true;
#else
    return false;
#endif
}

template <std::size_t capacity>
[[gnu::hot]] void capture_stack(unwind::StackBuffer<capacity>& stack, std::size_t limit) {
    const std::size_t max_depth = std::min(limit, capacity);
    unwind::walk_stack(stack, max_depth, own_code());
#ifdef MEMLAB_VERIFY_UNWIND
    unwind::verify_walk(stack, max_depth, own_code());
#endif
}

[[gnu::hot]] StackHash hash_frames(const unwind::StackView& stack, std::uint64_t epoch) {
    StackHasher hasher(
        stack.depth << 2 | (stack.ends_early ? 2U : 0U) | (stack.truncated ? 1U : 0U), epoch);
    hasher.add(
        stack.depth, [&](std::size_t i) { return stack.addresses[i]; },
        [&](std::size_t i) { return stack.ends[i]; });
    return hasher.result();
}

template void capture_stack(unwind::CapturedStack& stack, std::size_t limit);
template void capture_stack(unwind::ShortStack& stack, std::size_t limit);

}  // namespace memlab::profiler
