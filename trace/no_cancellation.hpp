// No pthread_cancel() takes effect on the calling thread within this scope: reads, writes and waits
// of libc are where it would, and a thread that ended there would leave its locks locked. It takes
// effect at the next such place of the program's own, as it would without memlab.
#pragma once

#include <pthread.h>

namespace memlab::trace {

/// Costs a dozen nanoseconds: for what makes system calls, not for every event.
class NoCancellation {
  public:
    NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
    NoCancellation(const NoCancellation&) = delete;
    NoCancellation& operator=(const NoCancellation&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace memlab::trace
