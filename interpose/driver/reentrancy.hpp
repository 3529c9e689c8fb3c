// Reentrancy guard: whether a thread, or a code address, is inside memlab.
#pragma once

#include <cstdint>

namespace memlab::interpose {

/// True when `address` is code of libmemlab.so itself.
bool is_own_export(const void* address);

/// Marks the calling thread as inside memlab. A hook called from inside another one (by a
/// profiler's callback that allocates while memlab holds a lock) calls the driver directly.
///
/// A thread may leave memlab without returning: a signal handler jumps out (siglongjmp), or the
/// stack is unwound by force. An entry is therefore nested only while the frame of the function
/// that entered memlab is still on the stack: below it, with its return address in place.
class InsideMemlab {
  public:
    [[gnu::always_inline]] InsideMemlab()
        : InsideMemlab(reinterpret_cast<std::uintptr_t>(__builtin_dwarf_cfa())) {}
    ~InsideMemlab();
    InsideMemlab(const InsideMemlab&) = delete;
    InsideMemlab& operator=(const InsideMemlab&) = delete;

    bool nested() const { return nested_; }

  private:
    /// `frame_end`: the lowest address above the frame of the function that enters.
    explicit InsideMemlab(std::uintptr_t frame_end);

    const bool nested_;
    std::uintptr_t earlier_address_ = 0;
    const InsideMemlab* earlier_object_ = nullptr;
};

/// Set when a thread enters memlab that had left it without returning. The thread's next memory
/// call cleans up after that and clears it.
__attribute__((tls_model("initial-exec"))) extern constinit thread_local bool left_by_a_jump;

/// Whether the calling thread is inside memlab, so that its driver calls are memlab's own.
bool thread_is_inside_memlab();

/// In a forked child: marks its only thread as outside memlab.
void forget_inside_after_fork();

}  // namespace memlab::interpose
