// A scope in which pthread_cancel() has no effect on the calling thread. libc's reads, writes and
// waits are cancellation points, and a thread that ended in one of memlab's would leave its locks
// locked. The cancellation takes effect at the program's next own cancellation point.
#pragma once

#include <pthread.h>

namespace memlab::threads {

/// Costs about 12 ns: for code that makes system calls, not for every event.
class NoCancellation {
  public:
    NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
    NoCancellation(const NoCancellation&) = delete;
    NoCancellation& operator=(const NoCancellation&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace memlab::threads
