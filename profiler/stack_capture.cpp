#include "profiler/stack_capture.hpp"

#include <algorithm>

#include "profiler/unwind/walk.hpp"
#ifdef MEMLAB_VERIFY_UNWIND
#include "profiler/unwind/reference.hpp"
#endif

// The linker's bounds of the object that this file is linked into: libmemlab.so, or a test program.
extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));
}

namespace memlab::profiler {

template <std::size_t room>
[[gnu::hot]] void capture_stack(StackRoom<room>& stack, std::size_t limit) {
    const std::size_t most = std::min(limit, room);
    const unwind::Bytes own{reinterpret_cast<std::uintptr_t>(__ehdr_start),
                            reinterpret_cast<std::uintptr_t>(etext)};
    unwind::walk_stack(stack, most, own);
#ifdef MEMLAB_VERIFY_UNWIND
    unwind::verify_walk(stack, most, own);
#endif
}

template void capture_stack(CapturedStack& stack, std::size_t limit);
template void capture_stack(ShortStack& stack, std::size_t limit);

}  // namespace memlab::profiler
