// Reentrancy guard: whether a thread, or a code address, is inside memlab.
#pragma once

namespace memlab::interpose {

/// True when `address` is code of libmemlab.so itself.
bool is_own_export(const void* address);

/// Marks the calling thread as inside memlab. A hook called from inside another one (by a
/// profiler's callback that allocates while memlab holds a lock) calls the driver directly.
///
/// A thread may leave memlab without returning: a signal handler jumps out (siglongjmp), or the
/// stack is unwound by force. An entry at the same or a shallower stack depth than the abandoned
/// one is therefore not nested.
class InsideMemlab {
  public:
    InsideMemlab();
    ~InsideMemlab();
    InsideMemlab(const InsideMemlab&) = delete;
    InsideMemlab& operator=(const InsideMemlab&) = delete;

    bool nested() const { return nested_; }

  private:
    const bool nested_;
};

/// Whether the calling thread is inside memlab, so that its driver calls are memlab's own.
bool thread_is_inside_memlab();

/// In a forked child: marks its only thread as outside memlab.
void forget_inside_after_fork();

}  // namespace memlab::interpose
