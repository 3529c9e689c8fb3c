#include "interpose/process/trim_thread.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>
#include <optional>
#include <vector>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/memory.hpp"
#include "interpose/memory/memory_limit.hpp"
#include "profiler/clock.hpp"
#include "profiler/lock_until.hpp"
#include "trace/own_thread.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t min_interval_ns = 10'000'000;
constexpr std::uint64_t max_interval_ns = 1'000'000'000;
constexpr std::uint64_t max_wait_for_trim_ns = 1'000'000'000;
constexpr std::uint64_t max_between_releases_ns = 3'600'000'000'000;
constexpr std::uint64_t context_bytes = 512ULL << 20;  // what another process needs to begin with

/// Less than a context takes, or an eighth of a small device, is free. Costs one cuMemGetInfo.
bool is_short_of_memory(const Context& context) {
    const CurrentContext current(context.handle());
    std::size_t free = 0;
    std::size_t total = 0;
    return device_memory_info(&free, &total) == CUDA_SUCCESS &&
           free < std::min<std::uint64_t>(context_bytes, total / 8);
}

/// The memory in use, after some of it was given back: no call of the program's may follow for
/// long.
void sample(Memory& memory, const Context& context) {
    if (!memory.has_recorder()) {
        return;
    }
    const CurrentContext current(context.handle());
    if (const std::optional<UsedMemory> used = used_memory(memory)) {
        record_sample(memory, context.device(), *used);
    }
}

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
    if (profiler::lock_until(&mutex_, profiler::monotonic_ns() + max_wait_for_trim_ns)) {
        pthread_mutex_unlock(&mutex_);
    }
}

void TrimThread::leave_ending_contexts() noexcept {
    if (started_.load(std::memory_order_relaxed) &&
        profiler::lock_until(&mutex_, profiler::monotonic_ns() + max_wait_for_trim_ns)) {
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
        const std::vector<Context*> contexts = memory_->contexts().all();
        std::vector<std::int64_t> frees_before;
        frees_before.reserve(contexts.size());
        for (Context* context : contexts) {
            frees_before.push_back(context->pool().stats().num_device_free);
        }
        if (for_child) {
            release_unused(children_, now, [](const Context&) { return true; });
        }
        release_unused(shortages_, now, is_short_of_memory);
        for (std::size_t i = 0; i < contexts.size(); ++i) {
            Context& context = *contexts[i];
            if (stopped_.load()) {
                return;
            }
            if (!context.ending() && context.backend().frees_without_waiting()) {
                context.pool().tick(now);
            }
            if (!context.ending() && context.pool().stats().num_device_free != frees_before[i]) {
                sample(*memory_, context);
            }
        }
    } catch (const std::bad_alloc&) {  // retry at the next tick
    }
}

/// All that is unused in the contexts for which `wanted` is true, unless it was given back for the
/// same reason lately.
template <class Wanted>
void TrimThread::release_unused(Pace& pace, std::uint64_t now_ns, const Wanted& wanted) {
    if (now_ns < pace.next_ns) {
        return;
    }
    std::int64_t growths = 0;
    bool released = false;
    for (Context* context : memory_->contexts().all()) {
        if (stopped_.load()) {
            return;
        }
        growths += context->pool().stats().num_device_alloc;
        if (!context->ending() && context->unused_bytes() != 0 &&
            context->backend().frees_without_waiting() && wanted(*context)) {
            released = context->pool().release_cached(false) != 0 || released;
        }
    }
    if (!released) {
        return;
    }
    const bool needed_again = growths > pace.growths_seen;
    pace.between_ns = needed_again && pace.between_ns != 0
                          ? 2 * std::min(pace.between_ns, max_between_releases_ns)
                          : trim_after_ns_;
    pace.growths_seen = growths;
    pace.next_ns = now_ns + pace.between_ns;
}

}  // namespace memlab::interpose
