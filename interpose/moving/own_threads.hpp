// Work that several threads of memlab's own do side by side: as many as the process has cores,
// twelve at most, the calling one among them.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>

#include "interpose/driver/function_ref.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "threads/own_thread.hpp"

namespace memlab::interpose {

inline constexpr unsigned most_own_threads = 12;

/// How many take part in in_own_threads().
inline unsigned own_thread_count() {
    cpu_set_t set;
    CPU_ZERO(&set);
    const int cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return std::clamp(static_cast<unsigned>(cores), 1U, most_own_threads);
}

/// Calls `work` in each of `count` of them, fewer where no more can be made; returns when all have
/// returned. It must not throw.
inline void in_own_threads(FunctionRef<void()> work, unsigned count = own_thread_count()) {
    pthread_t others[most_own_threads];
    std::size_t started = 0;
    const auto run = [](void* argument) -> void* {
        const InsideMemlab inside;
        (*static_cast<FunctionRef<void()>*>(argument))();
        return nullptr;
    };
    while (started + 1 < std::min(count, most_own_threads) &&
           threads::start_own_thread(run, &work, &others[started])) {
        ++started;
    }
    work();
    for (std::size_t i = 0; i < started; ++i) {
        ::pthread_join(others[i], nullptr);
    }
}

}  // namespace memlab::interpose
