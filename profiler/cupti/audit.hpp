// The audit: are all allocations that reached the driver known to memlab?
//
// Two ledgers are compared, address by address: what memlab made or recorded (its hooks tell), and
// what CUPTI's MEMORY2 records tell of, which come from beneath every hook and much later.
// Addresses are used again and the two ledgers run at different speeds, so only counts matter: a
// record and an allocation at the same address cancel each other, in whatever order they come. Of
// the records that are left at the end, those bypassed memlab whose call came from outside of its
// hooks.
//
// CUPTI's records do not name the function that was called; a callback at the driver's own entry
// does. It is told to the audit for calls that come from outside of memlab's hooks, by the
// correlation number that the record will carry. A record that is left without a stranger is of
// memory that memlab knows by a handle and not by its address (cuMemCreate), or of what the driver
// took by itself, as a graph with allocation nodes does when it is launched.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "trace/record.hpp"

namespace memlab::profiler::cupti {

/// Thread-safety: all functions, from any thread. Nothing here calls CUPTI or the recorder. Memory:
/// bounded by what one ledger is ahead of the other, and by max_open. Nothing throws: without host
/// memory the audit ends and says so.
class Audit {
  public:
    static constexpr std::size_t max_open = std::size_t{1} << 20;

    /// An allocation as CUPTI tells it.
    struct Seen {
        std::uint64_t address = 0;
        std::uint64_t bytes = 0;
        std::uint64_t monotonic_ns = 0;
        std::uint32_t correlation = 0;
        std::uint32_t device = 0;
        trace::MemoryKind kind = trace::MemoryKind::device;
    };

    /// memlab made this allocation, or recorded that the program did.
    void made(std::uint64_t address) noexcept;
    void seen(const Seen& record) noexcept;
    /// A driver function that allocates was entered from outside of memlab.
    void stranger(std::uint32_t correlation, std::uint32_t api, std::uint32_t stack) noexcept;

    struct Left {
        Seen record;
        std::uint32_t api = 0;    ///< 0: unknown
        std::uint32_t stack = 0;  ///< 0: unknown
    };
    struct Result {
        std::vector<Left> bypassed;  ///< by time
        std::uint64_t records = 0;   ///< all allocations seen
        std::uint64_t bytes = 0;
        std::uint64_t made = 0;
        bool overflowed = false;  ///< the ledgers drifted too far apart, or there was no memory
    };
    /// The comparison as of now. May throw std::bad_alloc.
    Result result() const;

    /// Whether records are left that nobody has accounted for and no stranger made: an allocation
    /// whose hook has not returned yet may be among them.
    bool waits() const noexcept;

  private:
    struct Ledger {
        std::uint64_t made = 0;
        std::vector<Seen> seen;
    };
    struct Stranger {
        std::uint32_t api = 0;
        std::uint32_t stack = 0;
    };
    template <class Body>
    void guarded(const Body& body) noexcept;

    mutable std::mutex mutex_;
    std::unordered_map<std::uint64_t, Ledger> open_;  ///< by address; none is even
    std::unordered_map<std::uint32_t, Stranger> strangers_;
    std::uint64_t records_ = 0;
    std::uint64_t bytes_ = 0;
    std::uint64_t made_ = 0;
    bool overflowed_ = false;
};

}  // namespace memlab::profiler::cupti
