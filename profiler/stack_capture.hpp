// Captures the calling thread's native stack.
//
// Uses memlab's unwinder (profiler/unwind/walk.hpp), which reads .eh_frame, so needs no frame
// pointers. A build with MEMLAB_VERIFY_UNWIND compares every stack with libgcc's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/call_site.hpp"
#include "profiler/object_symbols.hpp"
#include "profiler/stack_hash.hpp"
#include "profiler/unwind/bytes.hpp"
#include "profiler/unwind/captured_stack.hpp"

namespace memlab::profiler {

/// Fills `stack` with at most `limit` (<= max_depth) return addresses of the calling thread, except
/// memlab's own frames. Takes no lock, allocates nothing; async-signal-safe.
template <std::size_t capacity>
[[gnu::hot]] void capture_stack(unwind::StackBuffer<capacity>& stack, std::size_t limit);
extern template void capture_stack(unwind::CapturedStack& stack, std::size_t limit);
extern template void capture_stack(unwind::ShortStack& stack, std::size_t limit);

/// The code of the object that contains this function: frames in it are left out where a stack
/// begins with them.
unwind::Bytes own_code();

/// Whether this is a build with MEMLAB_VERIFY_UNWIND.
bool verifies_stacks();

/// Hashes all of a stack. `epoch`: as in StackTable::intern().
StackHash hash_frames(const unwind::StackView& stack, std::uint64_t epoch);

/// A function that works on behalf of an earlier call, and how to find that call: PyTorch's engine
/// runs, on its own thread, the backward of an operator that the forward called.
struct CallOrigin {
    /// The function's code; of no bytes, or null, where there is none.
    ObjectSymbols::Extent (*code)() noexcept = nullptr;

    /// The call that the innermost activation of the function on this thread works for; no stack:
    /// unknown. Called inside of that activation.
    CallSite (*site)() noexcept = nullptr;
};

/// Whether the calling thread was seen to run such a function. Only these threads search their
/// stacks for one, so that other threads do not pay for it.
__attribute__((tls_model("initial-exec"))) extern constinit thread_local bool serves_origins;

}  // namespace memlab::profiler
