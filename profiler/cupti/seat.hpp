// A subscriber's place in CUPTI: its handle, and the functions that are called with it. They are
// those of a CUPTI with several subscribers where it is one, and where it grants memlab such a
// place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/cupti/functions.hpp"

namespace memlab::profiler::cupti {

/// Called by CUPTI, on any thread. A shared seat's buffers come without context and stream.
struct BufferCallbacks {
    void(CUPTIAPI* provide)(std::uint8_t**, std::size_t*, std::size_t*);
    void(CUPTIAPI* consume)(CUcontext, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);
};

/// Thread-safety: take() before all others; then all functions, from any thread. No CUPTI is called
/// with a lock of memlab's held.
class Seat {
  public:
    /// `shared`: this CUPTI and this driver allow for several subscribers (Library).
    Seat(const Functions& functions, bool shared) : cupti_(functions), shared_(shared) {}

    CUptiResult take(CUpti_CallbackFunc callback, void* user) noexcept;
    bool taken() const { return handle_ != nullptr; }
    /// Whether others may sit beside. Constant once taken.
    bool shared() const { return shared_; }
    void leave() noexcept { cupti_.unsubscribe(handle_); }

    /// Gives records the time that `now` tells. Returns what is to be added to their times: 0, or
    /// the difference where CUPTI keeps its own clock.
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
