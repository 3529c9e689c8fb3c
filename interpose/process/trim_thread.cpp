#include "interpose/process/trim_thread.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include <algorithm>
#include <cerrno>

#include "interpose/driver/reentrancy.hpp"
#include "interpose/memory/memory.hpp"
#include "profiler/clock.hpp"
#include "profiler/lock_until.hpp"
#include "trace/own_thread.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t min_interval_ns = 10'000'000;
constexpr std::uint64_t max_interval_ns = 1'000'000'000;
constexpr std::uint64_t max_wait_at_exit_ns = 1'000'000'000;
constexpr std::uint64_t max_between_children_ns = 3'600'000'000'000;

}  // namespace

bool TrimThread::start(Memory& memory, std::uint64_t trim_after_ns) {
    if (trim_after_ns == 0 || started_.exchange(true)) {
        return false;
    }
    memory_ = &memory;
    trim_after_ns_ = trim_after_ns;
    return trace::start_own_thread(&TrimThread::run, this);
}

void TrimThread::child_starts() noexcept {
    if (started_.load(std::memory_order_relaxed) &&
        child_.exchange(1, std::memory_order_release) == 0) {
        const int saved = errno;
        syscall(SYS_futex, &child_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
        errno = saved;
    }
}

void TrimThread::stop() {
    if (!started_.load()) {
        return;
    }
    stopped_.store(true);
    if (profiler::lock_until(&mutex_, profiler::monotonic_ns() + max_wait_at_exit_ns)) {
        pthread_mutex_unlock(&mutex_);
    }
}

void* TrimThread::run(void* self) {
    const InsideMemlab inside;
    static_cast<TrimThread*>(self)->loop();
    return nullptr;
}

void TrimThread::loop() {
    const timespec interval =
        profiler::to_timespec(std::clamp(trim_after_ns_ / 2, min_interval_ns, max_interval_ns));
    while (!stopped_.load()) {
        // The futex's timeout is of the monotonic clock.
        syscall(SYS_futex, &child_, FUTEX_WAIT_PRIVATE, 0, &interval, nullptr, 0);
        const bool for_child = child_.exchange(0, std::memory_order_acquire) != 0;
        pthread_mutex_lock(&mutex_);
        if (!stopped_.load()) {
            trim(for_child);
        }
        pthread_mutex_unlock(&mutex_);
    }
}

void TrimThread::trim(bool for_child) {
    if (memory_->captures().capturing()) {
        return;
    }
    try {
        const std::uint64_t now = profiler::monotonic_ns();
        if (for_child && now >= next_child_ns_) {
            release_for_child(now);
        }
        for (Context* context : memory_->contexts().all()) {
            if (stopped_.load()) {
                return;
            }
            if (context->backend().frees_without_waiting()) {
                context->pool().tick(now);
            }
        }
    } catch (const std::bad_alloc&) {  // retry at the next tick
    }
}

/// The first child gets all that is unused. A program that starts children all the time and needs
/// its memory again each time keeps it for longer and longer.
void TrimThread::release_for_child(std::uint64_t now_ns) {
    std::int64_t growths = 0;
    for (Context* context : memory_->contexts().all()) {
        if (stopped_.load()) {
            return;
        }
        growths += context->pool().stats().num_device_alloc;
        if (context->unused_bytes() != 0 && context->backend().frees_without_waiting()) {
            context->pool().release_cached(false);
        }
    }
    const bool needed_again = growths > growths_seen_;
    between_children_ns_ = needed_again && between_children_ns_ != 0
                               ? 2 * std::min(between_children_ns_, max_between_children_ns)
                               : trim_after_ns_;
    growths_seen_ = growths;
    next_child_ns_ = now_ns + between_children_ns_;
}

}  // namespace memlab::interpose
