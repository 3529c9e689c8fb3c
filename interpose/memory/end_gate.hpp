// Keeps memlab's own use of a context, outside of calls of the program, apart from the calls that
// may end it.
//
// Most of these end nothing: wrapper libraries retain and release the primary context around each
// of their calls. So such a call only increments a counter, which a use reads: "may be ending" is
// over as soon as the call has returned. Later calls wait for a use that waits for that: however
// many threads retain and release without a pause, it gets the context.
//
// Neither side waits longer than a second, asleep: a call may wait for work of the GPU's, or never
// return. But a use that says so lasts longer, and is waited for.
#pragma once

#include <atomic>
#include <cstdint>

#include "profiler/clock.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class EndGate {
  public:
    static constexpr std::uint64_t max_wait_ns = 1'000'000'000;

    EndGate() = default;
    EndGate(const EndGate&) = delete;
    EndGate& operator=(const EndGate&) = delete;

    /// Around a call that may end the context. begin() returns when no use is left, or after
    /// max_wait_ns, unless a lasting one is left then.
    void begin() noexcept {
        calls_.fetch_add(1);
        if (uses_.load() != 0) [[unlikely]] {
            wait_for_uses();
        }
    }
    void finish() noexcept { calls_.fetch_sub(1); }

    /// Whether such a call is under way.
    bool ending() const noexcept { return calls_.load(std::memory_order_acquire) != 0; }

    enum class Kind : std::uint8_t { brief, lasting };

    /// While one exists that holds the gate no call begins that may end the context, unless it has
    /// waited for max_wait_ns and all uses are brief ones.
    class Use {
      public:
        /// Holds the gate unless a call is under way. Waits for its return, at most `wait_ns`.
        explicit Use(EndGate& gate, std::uint64_t wait_ns = 0, Kind kind = Kind::brief) noexcept
            : gate_(gate), lasts_(kind == Kind::lasting ? 1 : 0) {
            gate_.lasting_.fetch_add(lasts_);
            gate_.uses_.fetch_add(1);
            held_ = gate_.calls_.load() == 0 || (wait_ns != 0 && gate_.wait_for_calls(wait_ns));
            if (!held_) {
                end();
            }
        }
        ~Use() {
            if (held_) {
                end();
            }
        }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

        bool held() const { return held_; }

      private:
        void end() noexcept {
            gate_.uses_.fetch_sub(1);
            gate_.lasting_.fetch_sub(lasts_);
        }

        EndGate& gate_;
        const int lasts_;
        bool held_ = false;
    };

  private:
    static constexpr std::uint64_t interval_ns = 20'000;

    /// Not counted meanwhile: a use that waits for all calls must not wait for this one.
    void wait_for_uses() noexcept {
        const std::uint64_t until = profiler::monotonic_ns() + max_wait_ns;
        do {
            calls_.fetch_sub(1);
            profiler::sleep_ns(interval_ns);
            calls_.fetch_add(1);
        } while (uses_.load() != 0 && (profiler::monotonic_ns() < until || lasting_.load() != 0));
    }

    bool wait_for_calls(std::uint64_t wait_ns) const noexcept {
        const std::uint64_t until = profiler::monotonic_ns() + wait_ns;
        while (calls_.load() != 0) {
            if (profiler::monotonic_ns() >= until) {
                return false;
            }
            profiler::sleep_ns(interval_ns);
        }
        return true;
    }

    // Each side first counts itself, then looks at the other's count: sequentially consistent.
    std::atomic<int> calls_{0};
    std::atomic<int> uses_{0};
    std::atomic<int> lasting_{0};
};

}  // namespace memlab::interpose
