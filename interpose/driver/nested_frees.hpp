// Queue of frees of pooled memory that arrive while the calling thread is inside memlab: from a
// profiler's callback during a driver call of memlab's, or from a signal handler. The thread may
// hold the pool's lock, and the driver must not get the address (it would free the whole segment,
// or report an invalid pointer). So the free is queued and succeeds; the next call outside memlab
// performs it.
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
    enum class Result : std::uint8_t {
        noted,
        duplicate,  ///< the address is queued already
        full,       ///< no slot left: the block stays allocated, and take_lost() counts it
    };
    Result note(Api api, CUdeviceptr address);

    /// Whether the address is queued, that is, freed from the program's point of view.
    bool has(CUdeviceptr address) const {
        return any() && std::any_of(slots_.begin(), slots_.end(), [address](const auto& slot) {
                   return (slot.load(std::memory_order_relaxed) & address_mask) == address;
               });
    }

    bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

    /// The number of frees since the last call for which there was no slot.
    std::uint32_t take_lost() { return lost_.exchange(0, std::memory_order_relaxed); }

    static constexpr std::size_t capacity = 512;

    /// Removes each queued free of an address for which is_wanted(CUdeviceptr), and calls
    /// serve(Api, CUdeviceptr) for it.
    template <class IsWanted, class Serve>
    void drain(const IsWanted& is_wanted, const Serve& serve) {
        for (std::atomic<std::uint64_t>& slot : slots_) {
            if (!any()) {
                return;
            }
            std::uint64_t noted = slot.load(std::memory_order_acquire);
            if (noted != 0 && is_wanted(noted & address_mask) &&
                slot.compare_exchange_strong(noted, 0, std::memory_order_acq_rel)) {
                count_.fetch_sub(1, std::memory_order_relaxed);
                serve(static_cast<Api>(noted >> address_bits), noted & address_mask);
            }
        }
    }

  private:
    static constexpr unsigned address_bits = 48;  // as in SegmentIndex
    static constexpr std::uint64_t address_mask = (1ULL << address_bits) - 1;

    std::atomic<std::uint32_t> count_{0};
    std::atomic<std::uint32_t> lost_{0};
    std::array<std::atomic<std::uint64_t>, capacity> slots_{};
};

extern constinit NestedFrees nested_frees;

}  // namespace memlab::interpose
