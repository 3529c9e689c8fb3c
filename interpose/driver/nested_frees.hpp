// Frees of pooled memory that come while the calling thread is inside memlab: from a profiler's
// callback in a driver call that memlab makes, or from a signal handler. The pool's lock may be
// held by this very thread, and the driver must not see the address: it would free the segment, or
// know no such allocation. So the free is noted and succeeds; the next call that may serves it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "interpose/driver/driver.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread and from signal handlers; no locks. Constant-
/// initialized.
class NestedFrees {
  public:
    enum class Answer : std::uint8_t {
        noted,
        twice,  ///< the address is noted already
        full,   ///< so many wait that the block stays allocated
    };
    Answer note(Api api, CUdeviceptr address);

    /// Whether the address is noted: freed as far as the program knows.
    bool has(CUdeviceptr address) const {
        return any() && std::any_of(slots_.begin(), slots_.end(), [address](const auto& slot) {
                   return (slot.load(std::memory_order_relaxed) & address_mask) == address;
               });
    }

    bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

    /// Calls serve(Api, CUdeviceptr) for each, which is noted no more.
    template <class Serve>
    void take(const Serve& serve) {
        for (std::atomic<std::uint64_t>& slot : slots_) {
            if (!any()) {
                return;
            }
            if (const std::uint64_t noted = slot.exchange(0, std::memory_order_acq_rel)) {
                count_.fetch_sub(1, std::memory_order_relaxed);
                serve(static_cast<Api>(noted >> address_bits), noted & address_mask);
            }
        }
    }

  private:
    static constexpr unsigned address_bits = 48;  // as in SegmentIndex
    static constexpr std::uint64_t address_mask = (1ULL << address_bits) - 1;

    std::atomic<std::uint32_t> count_{0};
    std::array<std::atomic<std::uint64_t>, 512> slots_{};
};

extern constinit NestedFrees nested_frees;

}  // namespace memlab::interpose
