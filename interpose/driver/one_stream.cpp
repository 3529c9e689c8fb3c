#include "interpose/driver/one_stream.hpp"

#include "interpose/driver/reentrancy.hpp"
#include "interpose/driver/work_clock.hpp"

namespace memlab::interpose {

namespace {

constexpr StreamKey legacy_stream = 1;
constexpr StreamKey first_handle = 16;
constexpr StreamKey thread_bit = StreamKey{1} << 63;

// The system gives a thread's number to another when it is over, its stream's work may go on.
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

[[gnu::hot]] StreamKey stream_key(CUstream stream, bool per_thread) {
    if (stream == CU_STREAM_PER_THREAD || (stream == nullptr && per_thread)) {
        return thread_stream();
    }
    if (stream == CU_STREAM_LEGACY || stream == nullptr) {
        return legacy_stream;
    }
    const StreamKey handle = reinterpret_cast<std::uintptr_t>(stream);
    return handle < first_handle ? no_stream : handle;
}

CUstream stream_of_key(StreamKey key) {
    if ((key & thread_bit) != 0) {
        return CU_STREAM_PER_THREAD;
    }
    return key == legacy_stream ? CU_STREAM_LEGACY : reinterpret_cast<CUstream>(key);
}

bool is_stream_handle(StreamKey key) {
    return (key & thread_bit) == 0 && key >= first_handle;
}

void OneStream::begin(void (*order)()) {
    order_.store(order, std::memory_order_relaxed);
    why_.store("all work went to one stream", std::memory_order_relaxed);
    state_.store(none, std::memory_order_release);
}

void OneStream::other_work(StreamKey stream) {
    StreamKey known = none;
    if (stream != no_stream &&
        state_.compare_exchange_strong(known, stream, std::memory_order_acq_rel)) {
        return;
    }
    if (known == stream) {
        return;  // another thread has just begun it
    }
    give_up(stream == no_stream ? "work that is no single stream's" : "work on a second stream");
}

// Before the driver can give the handle to somebody else.
void OneStream::before_destroy(CUstream stream) {
    StreamKey known = stream_key(stream, false);
    if (known >= first_handle) {
        state_.compare_exchange_strong(known, gone, std::memory_order_acq_rel);
    }
}

void OneStream::has_context(CUcontext context) {
    CUcontext first = nullptr;
    if (context != nullptr && !context_.compare_exchange_strong(first, context) &&
        first != context) {
        give_up("a second context");
    }
}

// A callback that a profiler runs inside of one of our own calls may come here with our locks held.
// What it gives the device then goes unordered: memory that it allocates there is the driver's.
void OneStream::give_up(const char* why) noexcept {
    if (state_.load(std::memory_order_acquire) == many) {
        return;
    }
    const InsideMemlab inside;
    if (inside.nested()) {
        count_on_nothing(why);
        return;
    }
    const std::lock_guard lock(switching_);
    if (state_.load(std::memory_order_relaxed) == many) {
        return;
    }
    count_on_nothing(why);
    if (const auto order = order_.load(std::memory_order_relaxed)) {
        order();
    }
    state_.store(many, std::memory_order_release);
}

void OneStream::count_on_nothing(const char* why) noexcept {
    StreamKey known = state_.load(std::memory_order_relaxed);
    while (known != many &&
           !state_.compare_exchange_weak(known, ordering, std::memory_order_acq_rel)) {
    }
    if (known != many && known != ordering) {
        why_.store(why, std::memory_order_relaxed);
    }
}

void OneStream::forget_after_fork() {
    context_.store(nullptr, std::memory_order_relaxed);
    state_.store(many, std::memory_order_relaxed);
}

const char* OneStream::describe() const {
    return why_.load(std::memory_order_relaxed);
}

void work_goes_unseen() noexcept {
    work_clock.distrust();
    one_stream.give_up("a driver function that memlab does not know");
}

}  // namespace memlab::interpose
