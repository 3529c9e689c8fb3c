// An allocator as a what-if sees it: it takes the program's calls and keeps a Meter, in the words
// of docs/README.md (allocated, active, reserved). Everything that rows are compared by is counted
// in one place, so that no model can count differently from another.
//
// A model may refuse (out of memory) and must then be as it was before the call, but for memory
// given back. No function may be called for an allocation that it refused or already took back;
// Runner sees to it. Thread-safety: none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "report/whatif/driver_costs.hpp"
#include "report/whatif/program.hpp"

namespace memlab::whatif {

/// A multiple of this is what the driver takes from the device: its page.
inline constexpr std::uint64_t device_page = std::uint64_t{2} << 20;

/// The next multiple of `unit`; the largest multiple there is when that would overflow.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
    const std::uint64_t beyond = value % unit;
    if (beyond == 0) {
        return value;
    }
    const std::uint64_t floor = value - beyond;
    return floor > ~std::uint64_t{0} - unit ? floor : floor + unit;
}

/// Requests above it no allocator can serve: refused before any arithmetic could overflow.
inline constexpr std::uint64_t max_request = std::uint64_t{1} << 56;

/// The free memory inside what is reserved: the largest piece, and all of it.
struct FreeSpace {
    std::uint64_t largest = 0;
    std::uint64_t total = 0;
};

struct DriverCalls {
    std::uint64_t allocs = 0;  ///< cudaMalloc, or a driver pool taking memory from the device
    std::uint64_t frees = 0;
    std::uint64_t maps = 0;  ///< cuMemCreate with cuMemMap, a chunk each
    std::uint64_t unmaps = 0;
    double time_ns = 0;  ///< estimated, by driver_costs.hpp
};

class Meter {
  public:
    /// `capacity`: what the device has for this allocator.
    explicit Meter(std::uint64_t capacity) : capacity_(capacity) {}

    bool can_grow(std::uint64_t bytes) const { return bytes <= capacity_ - reserved_; }

    /// Reserved memory grows. `space` is asked for the free memory before, where this is a new
    /// peak: that is what the external fragmentation figure is about.
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

    // The driver's calls, each with what it costs.
    void count_alloc(std::uint64_t bytes) {
        ++calls_.allocs;
        calls_.time_ns += cost::of(cost::malloc_base, cost::malloc_per_mib, bytes);
    }
    void count_free(std::uint64_t bytes) {
        ++calls_.frees;
        calls_.time_ns += cost::of(cost::free_base, cost::free_per_mib, bytes);
    }
    void count_map(std::uint64_t bytes, std::uint64_t chunks) {
        calls_.maps += chunks;
        calls_.time_ns += static_cast<double>(chunks) * (cost::create_base + cost::map_base) +
                          cost::of(0, cost::create_per_mib + cost::map_per_mib, bytes);
    }
    void count_unmap(std::uint64_t bytes, std::uint64_t chunks) {
        calls_.unmaps += chunks;
        calls_.time_ns += static_cast<double>(chunks) * cost::unmap_base +
                          cost::of(0, cost::unmap_per_mib, bytes);
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

    /// Serves `id` (unique, small) and notes it; false when it is out of memory.
    virtual bool allocate(std::uint32_t id, const Allocation& allocation) = 0;
    /// The application gives it back, in the order of its stream.
    virtual void free(std::uint32_t id) = 0;
    /// The device is done with it. For models of stream-ordered allocators nothing new.
    virtual void complete(std::uint32_t /*id*/) {}
    virtual void empty_cache() {}
    /// The program has surely waited for the device.
    virtual void synchronize() {}
    /// Everything of this context has been freed and completed.
    virtual void context_lost(std::uint32_t /*context*/) {}

    const Meter& meter() const { return meter_; }

    /// The free memory just before the last new reserved peak.
    virtual FreeSpace at_growth() const { return meter_.at_growth(); }

  protected:
    Meter meter_;
};

}  // namespace memlab::whatif
