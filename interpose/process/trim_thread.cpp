#include "interpose/process/trim_thread.hpp"

#include <csignal>
#include <cstdlib>
#include <ctime>

#include <algorithm>

#include "interpose/driver/reentrancy.hpp"
#include "interpose/memory/memory.hpp"
#include "profiler/clock.hpp"
#include "profiler/lock_until.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t min_interval_ns = 10'000'000;
constexpr std::uint64_t max_interval_ns = 1'000'000'000;
constexpr std::uint64_t max_wait_at_exit_ns = 1'000'000'000;

class AllSignalsBlocked {
  public:
    AllSignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    AllSignalsBlocked(const AllSignalsBlocked&) = delete;
    AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

  private:
    sigset_t before_;
};

}  // namespace

bool TrimThread::start(Memory& memory, std::uint64_t trim_after_ns) {
    if (trim_after_ns == 0 || started_.exchange(true)) {
        return false;
    }
    memory_ = &memory;
    interval_ns_ = std::clamp(trim_after_ns / 2, min_interval_ns, max_interval_ns);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&stopped_changed_, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const AllSignalsBlocked blocked;  // the new thread inherits the mask
    pthread_t thread{};
    if (pthread_create(&thread, nullptr, &TrimThread::run, this) != 0) {
        return false;
    }
    pthread_detach(thread);
    return true;
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
    pthread_mutex_lock(&mutex_);
    while (!stopped_.load()) {
        const timespec until = profiler::to_timespec(profiler::monotonic_ns() + interval_ns_);
        pthread_cond_timedwait(&stopped_changed_, &mutex_, &until);
        trim();
    }
    pthread_mutex_unlock(&mutex_);
}

void TrimThread::trim() {
    if (memory_->captures().capturing()) {
        return;
    }
    try {
        const std::uint64_t now = profiler::monotonic_ns();
        for (Context* context : memory_->contexts().all()) {
            if (stopped_.load()) {
                return;
            }
            if (context->backend().fences().idle()) {
                context->pool().tick(now);
            }
        }
    } catch (const std::bad_alloc&) {  // retry at the next tick
    }
}

}  // namespace memlab::interpose
