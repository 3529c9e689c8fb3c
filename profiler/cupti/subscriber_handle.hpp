// A subscriber's handle to CUPTI, and the functions that are called with it. Where this CUPTI and
// driver allow for several subscribers these are the newer ones (_v2), and the subscription is
// shared; else, or if CUPTI refuses that, they are the older ones, and it is exclusive.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/cupti/functions.hpp"

namespace memlab::profiler::cupti {

/// Called by CUPTI, on any thread. Buffers of a shared subscription come without context and
/// stream.
struct BufferCallbacks {
    void(CUPTIAPI* provide)(std::uint8_t**, std::size_t*, std::size_t*);
    void(CUPTIAPI* consume)(CUcontext, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);
};

/// Thread-safety: subscribe() before all others; then all functions, from any thread. No CUPTI is
/// called with a lock of memlab's held.
class SubscriberHandle {
  public:
    /// `shared`: this CUPTI and this driver allow for several subscribers (Library).
    SubscriberHandle(const Functions& functions, bool shared)
        : cupti_(functions), shared_(shared) {}

    CUptiResult subscribe(CUpti_CallbackFunc callback, void* user) noexcept;
    bool subscribed() const { return handle_ != nullptr; }
    /// Whether others may subscribe beside it. Constant once subscribed.
    bool shared() const { return shared_; }
    void unsubscribe() noexcept { cupti_.unsubscribe(handle_); }

    /// Makes `now` the clock of CUPTI's records. Returns what is to be added to their times, in
    /// nanoseconds: 0, or the difference where CUPTI keeps its own clock.
    std::uint64_t use_clock(std::uint64_t(CUPTIAPI* now)()) noexcept;

    CUptiResult enable_callback(CUpti_CallbackDomain domain, CUpti_CallbackId function) noexcept {
        return cupti_.enable_callback(1, handle_, domain, function);
    }
    /// One set of callbacks per process.
    CUptiResult register_buffers(const BufferCallbacks& callbacks) noexcept;
    CUptiResult enable(CUpti_ActivityKind kind) noexcept;
    void disable(CUpti_ActivityKind kind) noexcept;
    void flush(bool forced) noexcept {
        cupti_.flush_all(forced ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0);
    }
    /// The next record of a buffer; null: there is none.
    CUpti_Activity* next_record(std::uint8_t* buffer, std::size_t valid,
                                CUpti_Activity* record) noexcept;
    /// Records dropped since the last call.
    std::size_t dropped_records(CUcontext context, std::uint32_t stream) noexcept;

    const char* text(CUptiResult result) const noexcept;

  private:
    const Functions cupti_;
    bool shared_;
    CUpti_SubscriberHandle handle_ = nullptr;
};

}  // namespace memlab::profiler::cupti
