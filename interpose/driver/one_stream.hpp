// Whether all work of the process goes to one stream. Then the order of that stream alone makes it
// safe to use memory again that was freed a moment ago: whoever gets it submits work later, to the
// same stream. No fence is asked and none is waited for (Pool: DeviceBackend::ordered_behind).
//
// States, in their order, and never back: nothing submitted; one stream; that stream destroyed; a
// second one begins; many. One state for the process, as there is one work clock: work of a second
// context counts as a second stream.
//
// Why it is safe. A free that counts on the stream still records its fence. Say that old work used
// the block, that the free came, and that new work uses it:
//  - the old work was looked at before it was submitted, and had been submitted when the free was
//    called (else plain CUDA could free the memory before the work as well). The free finds the
//    state "one stream", so that look did, too: the old work is on that stream;
//  - the new work is looked at before it is submitted, and after the block was handed out. Either
//  it
//    goes to the same stream, which orders it; or it finds another state. The first to find that
//    makes the device order all future work behind the fence of the last free that counted on the
//    stream, while the others wait for it; only then may they submit. The fence stands for the
//    frees before it, too;
//  - frees look at the state, and the switch takes their last fence, under a lock of the fences
//    (CudaFences): a free is on one side of the switch or on the other. Between a look and the
//    call of the driver another stream may begin: the work is on the one stream all the same, and
//    its memory is freed after it, with a fence that is waited for.
//
// Why nothing hangs that would not with plain CUDA. Only frees count on the stream for which plain
// CUDA's host would have waited for the device (cuMemFree): what a second stream is put behind was
// over there before. Frees in a stream's own order (cuMemFreeAsync) never count on it.
//
// A stream is what it means, not its handle: the legacy stream has three names, the per-thread
// stream is one in each thread, and a destroyed stream's handle may be given to the next one while
// its work still runs. What is not understood counts as many: copies between contexts, launches for
// several devices, kernels whose end only an event of their own tells (programmatic events). So do:
// a second context, a stream capture that begins (no call that orders anything
// may fall into it), work that memlab cannot see (work_clock.hpp).
//
// A kernel that may begin before the one before it has ended (programmatic stream serialization) is
// launched without that permission while one stream is known.
//
// What is not work in a stream is not ordered by one: a host or another device that reaches memory
// by other ways than CUDA's. There the program has to wait for the device, as it must with any
// allocator that knows streams.
//
// Lock order: this -> contexts -> gate (shared) -> fences. Taken without any of the pool's.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// Names a stream for as long as the process lives; those of OneStream's states are no stream's.
using StreamKey = std::uint64_t;

/// Of a stream argument; `per_thread`: null means the calling thread's default stream.
StreamKey stream_key(CUstream stream, bool per_thread);

/// The stream that a key names, for the calling thread; the key must not be no_stream.
CUstream stream_of_key(StreamKey key);

/// Whether it is a stream that the program made, as opposed to a context's default ones.
bool is_stream_handle(StreamKey key);

/// Of a call that is no work of one stream.
inline constexpr StreamKey no_stream = 6;

/// Thread-safety: all functions, from any thread. Constant-initialized: works before main, when
/// nothing is known.
class OneStream {
  public:
    /// Begins to notice, before anything was submitted. `order` puts all future work of the device
    /// behind the last free that counted on the stream; it is called once, when a second one
    /// begins.
    void begin(void (*order)());

    /// False from the moment on when there is nothing left to notice.
    bool notices() const { return state_.load(std::memory_order_acquire) != many; }

    /// To be called before work is submitted while notices(). Waits while a second stream begins.
    void before_work(StreamKey stream) {
        const StreamKey known = state_.load(std::memory_order_acquire);
        if (known != many && known != stream) {
            other_work(stream);
        }
    }

    /// Frees may count on the stream's order. Call with the lock held that order_second_stream()
    /// takes.
    bool orders_all() const {
        const StreamKey known = state_.load(std::memory_order_relaxed);
        return known != none && known != ordering && known != many;
    }

    /// The stream is about to be destroyed.
    void before_destroy(CUstream stream);

    /// The program has this context.
    void has_context(CUcontext context);

    /// For good. `why` is kept; it says what there was. Call without any lock of ours.
    void give_up(const char* why) noexcept;

    /// Frees count on nothing any more; the next to submit work gives up. Under any lock.
    void count_on_nothing(const char* why) noexcept;

    /// In a forked child, which has no CUDA when its parent had: nothing is known, nothing waits.
    void forget_after_fork();

    /// "all work went to one stream", or why not. Never null.
    const char* describe() const;

  private:
    static constexpr StreamKey none = 0;
    static constexpr StreamKey gone = 3;
    static constexpr StreamKey ordering = 4;
    static constexpr StreamKey many = 5;

    void other_work(StreamKey stream);

    std::atomic<StreamKey> state_{many};
    std::atomic<CUcontext> context_{nullptr};
    std::atomic<const char*> why_{"not known"};
    std::mutex switching_;
    std::atomic<void (*)()> order_{nullptr};
};

extern constinit OneStream one_stream;

/// Work may be submitted unseen from now on: neither the work clock nor one stream is known.
void work_goes_unseen() noexcept;

}  // namespace memlab::interpose
