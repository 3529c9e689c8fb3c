// The audit: finds allocations in the driver that bypassed memlab.
//
// Two sources are matched by address: the allocations that memlab made or recorded (by its hooks),
// and CUPTI's MEMORY2 records, which come from below every hook and much later. Addresses are
// reused and the sources run at different speeds, so only counts matter: a record and a known
// allocation at the same address cancel each other, in either order. Of the records that remain,
// those whose call came from outside of memlab's hooks are bypasses.
//
// CUPTI's records do not name the called function; a callback at the driver's entry does. It is
// added for calls from outside of memlab's hooks, by the correlation id that the record will have.
// A remaining record without such a call is of memory that memlab knows by handle and not by
// address (cuMemCreate), or of the driver's own, as at the launch of a graph with allocation nodes.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "threads/mutex.hpp"
#include "trace/record.hpp"

namespace memlab::profiler::cupti {

/// Thread-safety: all functions, from any thread. Calls neither CUPTI nor the recorder. Memory:
/// proportional to the unmatched entries, at most max_open. Out of host memory the audit stops and
/// sets `overflowed`.
class Audit {
  public:
    static constexpr std::size_t max_open = std::size_t{1} << 20;

    /// A CUPTI record of an allocation.
    struct Allocation {
        std::uint64_t address = 0;
        std::uint64_t bytes = 0;
        std::uint64_t monotonic_ns = 0;
        std::uint32_t correlation = 0;
        std::uint32_t device = 0;
        trace::MemoryKind kind = trace::MemoryKind::device;
    };

    /// Adds an allocation that memlab made, or recorded as made by the program.
    void add_known(std::uint64_t address) noexcept;
    void add_record(const Allocation& record) noexcept;
    /// Adds a call of an allocating driver function from outside of memlab.
    void add_bypass_call(std::uint32_t correlation, std::uint32_t api,
                         std::uint32_t stack) noexcept;

    struct Bypass {
        Allocation record;
        std::uint32_t api = 0;    ///< 0: unknown
        std::uint32_t stack = 0;  ///< 0: unknown
    };
    struct Result {
        std::vector<Bypass> bypassed;  ///< by time
        std::uint64_t records = 0;     ///< allocations reported by CUPTI
        std::uint64_t bytes = 0;
        std::uint64_t known = 0;
        bool overflowed = false;  ///< too many unmatched entries, or out of memory
    };
    /// The present result. May throw std::bad_alloc.
    Result result() const;

    /// Whether there are unmatched records that no bypass call explains: the hook of such an
    /// allocation may not have returned yet.
    bool has_pending() const noexcept;

  private:
    /// The unmatched entries of one address.
    struct Unmatched {
        std::uint64_t known = 0;
        std::vector<Allocation> records;
    };
    struct BypassCall {
        std::uint32_t api = 0;
        std::uint32_t stack = 0;
    };
    template <class Body>
    void guarded(const Body& body) noexcept;

    mutable threads::Mutex mutex_;
    /// By address; never empty entries.
    std::unordered_map<std::uint64_t, Unmatched> open_ MEMLAB_GUARDED_BY(mutex_);
    std::unordered_map<std::uint32_t, BypassCall> bypass_calls_ MEMLAB_GUARDED_BY(mutex_);
    std::uint64_t records_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::uint64_t bytes_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::uint64_t known_ MEMLAB_GUARDED_BY(mutex_) = 0;
    bool overflowed_ MEMLAB_GUARDED_BY(mutex_) = false;
};

}  // namespace memlab::profiler::cupti
