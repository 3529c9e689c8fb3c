#include "interpose/driver/one_stream.hpp"

#include "interpose/driver/reentrancy.hpp"
#include "interpose/driver/work_clock.hpp"

namespace memlab::interpose {

namespace {

constexpr StreamKey thread_bit = StreamKey{1} << 63;

// A number of its own: the kernel reuses thread ids while the ended thread's stream may still have
// work.
StreamKey thread_stream() {
    static constinit std::atomic<StreamKey> threads{0};
    __attribute__((tls_model("initial-exec"))) static thread_local StreamKey number = 0;
    if (number == 0) {
        number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
    }
    return thread_bit | number;
}

}  // namespace

constinit OneStream one_stream;

[[gnu::hot]] StreamKey default_stream_key(CUstream stream, bool per_thread) {
    if (stream == CU_STREAM_PER_THREAD || (stream == nullptr && per_thread)) {
        return thread_stream();
    }
    return stream == CU_STREAM_LEGACY || stream == nullptr ? legacy_stream : no_stream;
}

CUstream to_stream(StreamKey key) {
    if ((key & thread_bit) != 0) {
        return CU_STREAM_PER_THREAD;
    }
    return key == legacy_stream ? CU_STREAM_LEGACY : reinterpret_cast<CUstream>(key);
}

bool is_stream_handle(StreamKey key) {
    return (key & thread_bit) == 0 && key >= first_handle;
}

void OneStream::start_tracking(void (*order)()) {
    order_.store(order, std::memory_order_relaxed);
    why_.store("all work went to one stream", std::memory_order_relaxed);
    state_.store(none, std::memory_order_release);
}

void OneStream::before_submit_slow(StreamKey stream) {
    StreamKey known = none;
    if (stream != no_stream &&
        state_.compare_exchange_strong(known, stream, std::memory_order_acq_rel)) {
        return;
    }
    if (known == stream) {
        return;  // another thread registered it first
    }
    give_up(stream == no_stream ? "work that is no single stream's" : "work on a second stream");
}

// Call before the driver can reuse the handle.
void OneStream::before_destroy(CUstream stream) {
    StreamKey known = stream_key(stream, false);
    if (known >= first_handle) {
        state_.compare_exchange_strong(known, destroyed, std::memory_order_acq_rel);
    }
}

void OneStream::has_context(CUcontext context) {
    CUcontext first = nullptr;
    if (context != nullptr && !context_.compare_exchange_strong(first, context) &&
        first != context) {
        give_up("a second context");
    }
}

// A profiler's callback inside one of memlab's own calls may come here with memlab's locks held.
// Its work then stays unordered, which is safe: memory that it allocates there comes from the
// driver.
void OneStream::give_up(const char* why) noexcept {
    if (state_.load(std::memory_order_acquire) == multiple) {
        return;
    }
    const InsideMemlab inside;
    if (inside.nested()) {
        begin_switch(why);
        return;
    }
    const threads::LockGuard lock(switch_mutex_);
    if (state_.load(std::memory_order_relaxed) == multiple) {
        return;
    }
    begin_switch(why);
    if (const auto order = order_.load(std::memory_order_relaxed)) {
        order();
    }
    state_.store(multiple, std::memory_order_release);
}

void OneStream::begin_switch(const char* why) noexcept {
    StreamKey known = state_.load(std::memory_order_relaxed);
    while (known != multiple &&
           !state_.compare_exchange_weak(known, switching, std::memory_order_acq_rel)) {
    }
    if (known != multiple && known != switching) {
        why_.store(why, std::memory_order_relaxed);
    }
}

void OneStream::forget_after_fork() {
    context_.store(nullptr, std::memory_order_relaxed);
    state_.store(multiple, std::memory_order_relaxed);
}

const char* OneStream::describe() const {
    return why_.load(std::memory_order_relaxed);
}

void on_untracked_work(const char* why) noexcept {
    work_clock.distrust();
    one_stream.give_up(why);
}

}  // namespace memlab::interpose
