// Whether a thread, or an address, is inside memlab.
#pragma once

namespace memlab::interpose {

/// True when `address` is code of libmemlab.so itself.
bool is_own_export(const void* address);

/// Marks the calling thread as inside memlab. A hook reached from inside another one (a profiler's
/// callback that allocates while we hold a lock) goes straight to the driver.
///
/// A thread may leave memlab without returning: a signal handler jumps out of what it interrupted
/// (siglongjmp), or its stack is unwound by force. What then enters memlab no deeper in the same
/// stack than the one that was left is not inside it.
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

/// Whether the calling thread is inside memlab: what it calls now is memlab's doing.
bool thread_is_inside_memlab();

/// In a forked child: its only thread is outside.
void forget_inside_after_fork();

}  // namespace memlab::interpose
