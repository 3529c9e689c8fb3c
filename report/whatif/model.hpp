// The interface of the simulated allocators of a what-if. A model serves the program's calls and
// updates a Meter (allocated, active, reserved as in docs/numbers.md), which counts the same way
// for all models.
//
// A model may refuse an allocation (out of memory); its state is then unchanged, except for
// released memory. No function may be called for an allocation that was refused or completed; run()
// ensures that. Thread-safety: none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "report/whatif/driver_costs.hpp"
#include "report/whatif/program.hpp"

namespace memlab::report::whatif {

/// The page size of the driver: it takes multiples of this from the device.
inline constexpr std::uint64_t device_page = std::uint64_t{2} << 20;

/// Rounds up to a multiple of `unit`; down when that would overflow.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
    const std::uint64_t beyond = value % unit;
    if (beyond == 0) {
        return value;
    }
    const std::uint64_t floor = value - beyond;
    return floor > ~std::uint64_t{0} - unit ? floor : floor + unit;
}

/// Larger requests are refused before any arithmetic can overflow.
inline constexpr std::uint64_t max_request = std::uint64_t{1} << 56;

/// Free memory inside reserved memory: the largest range and the sum.
struct FreeSpace {
    std::uint64_t largest = 0;
    std::uint64_t total = 0;
};

struct DriverCalls {
    std::uint64_t allocs = 0;  ///< cudaMalloc, or a driver pool taking memory from the device
    std::uint64_t frees = 0;
    std::uint64_t maps = 0;  ///< cuMemCreate + cuMemMap, one per chunk
    std::uint64_t unmaps = 0;
    double time_ns = 0;  ///< estimated from driver_costs.hpp
};

class Meter {
  public:
    /// `capacity`: bytes available to this allocator.
    explicit Meter(std::uint64_t capacity) : capacity_(capacity) {}

    bool can_grow(std::uint64_t bytes) const { return bytes <= capacity_ - reserved_; }

    /// Reserved memory grows. At a new peak, `space` is called for the free memory just before: the
    /// figure for external fragmentation.
    template <typename Space>
    void grow(std::uint64_t bytes, Space space) {
        if (reserved_ + bytes > reserved_peak_) {
            at_growth_ = space();
        }
        reserved_ += bytes;
        reserved_peak_ = std::max(reserved_peak_, reserved_);
    }
    void shrink(std::uint64_t bytes) { reserved_ -= bytes; }

    void allocated(std::uint64_t requested, std::uint64_t size) {
        requested_ += requested;
        allocated_ += size;
        active_ += size;
        active_peak_ = std::max(active_peak_, active_);
        if (allocated_ > allocated_peak_) {
            allocated_peak_ = allocated_;
            requested_at_peak_ = requested_;
        }
    }
    void freed(std::uint64_t requested, std::uint64_t size) {
        requested_ -= requested;
        allocated_ -= size;
    }
    void completed(std::uint64_t size) { active_ -= size; }

    // Driver calls and their costs.
    void count_alloc(std::uint64_t bytes) {
        ++calls_.allocs;
        calls_.time_ns += cost::time_ns(cost::malloc_base, cost::malloc_per_mib, bytes);
    }
    void count_free(std::uint64_t bytes) {
        ++calls_.frees;
        calls_.time_ns += cost::time_ns(cost::free_base, cost::free_per_mib, bytes);
    }
    void count_map(std::uint64_t bytes, std::uint64_t chunks) {
        calls_.maps += chunks;
        calls_.time_ns += static_cast<double>(chunks) * (cost::create_base + cost::map_base) +
                          cost::time_ns(0, cost::create_per_mib + cost::map_per_mib, bytes);
    }
    void count_unmap(std::uint64_t bytes, std::uint64_t chunks) {
        calls_.unmaps += chunks;
        calls_.time_ns += static_cast<double>(chunks) * cost::unmap_base +
                          cost::time_ns(0, cost::unmap_per_mib, bytes);
    }
    void count_async_call() { calls_.time_ns += cost::async_call; }

    std::uint64_t capacity() const { return capacity_; }
    std::uint64_t reserved() const { return reserved_; }
    std::uint64_t reserved_peak() const { return reserved_peak_; }
    std::uint64_t requested() const { return requested_; }
    std::uint64_t allocated() const { return allocated_; }
    std::uint64_t allocated_peak() const { return allocated_peak_; }
    std::uint64_t requested_at_peak() const { return requested_at_peak_; }
    std::uint64_t active() const { return active_; }
    std::uint64_t active_peak() const { return active_peak_; }
    FreeSpace at_growth() const { return at_growth_; }
    const DriverCalls& calls() const { return calls_; }

  private:
    std::uint64_t capacity_;
    std::uint64_t reserved_ = 0;
    std::uint64_t reserved_peak_ = 0;
    std::uint64_t requested_ = 0;
    std::uint64_t allocated_ = 0;
    std::uint64_t allocated_peak_ = 0;
    std::uint64_t requested_at_peak_ = 0;
    std::uint64_t active_ = 0;
    std::uint64_t active_peak_ = 0;
    FreeSpace at_growth_;
    DriverCalls calls_;
};

class Model {
  public:
    explicit Model(std::uint64_t capacity) : meter_(capacity) {}
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    virtual ~Model() = default;

    /// Allocates for `id` (unique, small); false when out of memory.
    virtual bool allocate(std::uint32_t id, const Allocation& allocation) = 0;
    /// The application frees it, in stream order.
    virtual void free(std::uint32_t id) = 0;
    /// The device is done with it. No-op for stream-ordered allocators.
    virtual void complete(std::uint32_t /*id*/) {}
    virtual void empty_cache() {}
    /// The program has synchronized with the device.
    virtual void synchronize() {}
    /// Everything of this context has been freed and completed.
    virtual void context_lost(std::uint32_t /*context*/) {}

    const Meter& meter() const { return meter_; }

    /// The free memory just before the last new reserved peak.
    virtual FreeSpace at_growth() const { return meter_.at_growth(); }

  protected:
    Meter meter_;
};

}  // namespace memlab::report::whatif
