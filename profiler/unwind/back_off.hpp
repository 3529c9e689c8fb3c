// A wait that is a few instructions long as a rule, for another thread that is in the middle of
// something: gives way to it a few times, then sleeps. Yielding alone is no wait for a thread of
// real-time priority: it gives way to no thread of a lower one, which then never gets on.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace memlab::profiler::unwind {

/// One for each wait; wait() once for each look at what is waited for. No cancellation point.
class BackOff {
  public:
    void wait() noexcept {
        constexpr int most_yields = 8;
        if (yields_ < most_yields) {
            ++yields_;
            sched_yield();
        } else {
            constexpr timespec interval{0, 50'000};
            syscall(SYS_nanosleep, &interval, nullptr);
        }
    }

  private:
    int yields_ = 0;
};

}  // namespace memlab::profiler::unwind
