// Detects whether all work of the process goes to one stream. While it does, a freed block can be
// reused at once without waiting for a fence: its next user submits work later, to the same stream
// (Pool: DeviceBackend::ordered_behind).
//
// States, in this order, never backwards: nothing submitted; one stream; that stream destroyed;
// switching (a second stream begins); multiple streams. There is one state for the process, as
// there is one work clock: work of a second context counts as a second stream.
//
// Why that is safe, and cannot deadlock: docs/pool.md, "Why one stream is safe".
//
// Lock order: this -> contexts -> gate (shared) -> fences. Taken without any of the pool's.
#pragma once

#include <atomic>
#include <cstdint>

#include "interpose/driver/cuda_abi.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

/// Identifies a stream for the lifetime of the process. Never equals one of OneStream's states.
using StreamKey = std::uint64_t;

inline constexpr StreamKey legacy_stream = 1;
inline constexpr StreamKey first_handle = 16;  ///< lower ones are names of default streams

/// Of a stream argument below first_handle.
StreamKey default_stream_key(CUstream stream, bool per_thread);

/// The key of a stream argument; `per_thread`: null means the calling thread's default stream.
inline StreamKey stream_key(CUstream stream, bool per_thread) {
    const StreamKey handle = reinterpret_cast<std::uintptr_t>(stream);
    if (stream == nullptr && !per_thread) {
        return legacy_stream;
    }
    return handle >= first_handle ? handle : default_stream_key(stream, per_thread);
}

/// The stream that a key identifies, for the calling thread; the key must not be no_stream.
CUstream to_stream(StreamKey key);

/// True for a stream that the program created, false for a default stream.
bool is_stream_handle(StreamKey key);

/// The key of a call whose work is not in a single stream.
inline constexpr StreamKey no_stream = 6;

/// Thread-safety: all functions, from any thread. Constant-initialized: before main it is in the
/// state "multiple".
class OneStream {
  public:
    /// Starts tracking; call before any work was submitted. `order` must order all future work of
    /// the device behind the last free that relied on the stream; it is called once, when a second
    /// stream begins.
    void start_tracking(void (*order)());

    /// False in the state "multiple": before start_tracking(), and for good after a switch.
    bool tracking() const { return state_.load(std::memory_order_acquire) != multiple; }

    /// Call before work is submitted while tracking(). Blocks during a switch to multiple streams.
    void before_submit(StreamKey stream) {
        const StreamKey known = state_.load(std::memory_order_acquire);
        if (known != multiple && known != stream) {
            before_submit_slow(stream);
        }
    }

    /// True while frees may rely on the stream's order. Call with the lock held that
    /// order_second_stream() takes.
    bool orders_all_work() const {
        const StreamKey known = state_.load(std::memory_order_relaxed);
        return known != none && known != switching && known != multiple;
    }

    /// The stream is about to be destroyed.
    void before_destroy(CUstream stream);

    /// The program uses this context.
    void has_context(CUcontext context);

    /// Switches to multiple streams for good. `why` must be a static string; describe() returns it.
    /// Call without any lock of memlab's.
    void give_up(const char* why) noexcept;

    /// Frees stop relying on the stream; the next submission completes the switch. May be called
    /// under any lock.
    void begin_switch(const char* why) noexcept;

    /// In a forked child, which cannot use CUDA if its parent had: stops tracking without waiting.
    void forget_after_fork();

    /// "all work went to one stream", or why not. Never null.
    const char* describe() const;

  private:
    static constexpr StreamKey none = 0;
    static constexpr StreamKey destroyed = 3;
    static constexpr StreamKey switching = 4;
    static constexpr StreamKey multiple = 5;

    void before_submit_slow(StreamKey stream);

    std::atomic<StreamKey> state_{multiple};
    std::atomic<CUcontext> context_{nullptr};
    std::atomic<const char*> why_{"not known"};
    threads::Mutex switch_mutex_;  ///< held while the second stream is ordered; all others wait
    std::atomic<void (*)()> order_{nullptr};
};

extern constinit OneStream one_stream;

/// Work may be submitted unseen from now on: distrusts the work clock and gives up the single
/// stream. `why`: as for OneStream::give_up().
void on_untracked_work(const char* why) noexcept;

}  // namespace memlab::interpose
