// A set-associative cache of recent stack walks, keyed by the initial stack pointer (4 ways).
//
// Programs reach their allocations by few call paths, and between two allocations mostly the inner
// end of the stack changes: the outer frames keep their stack pointers and return addresses. A walk
// that looks each rule up in the rule table (rules.hpp) pays a dependent cache miss per frame: a
// frame must be decoded to know where the next one is. The frames of a cached walk are contiguous,
// so they are prefetched before the walk reaches them. Candidates are the walks that began at the
// same sp (the most recent one, then, where this walk diverges from it, the others of its set) and
// the last walk of all.
//
// A walk that consists of cached frames only is not inserted, even if they come from several walks.
//
// A cached frame only supplies what the rule table would: the rule of a code address within one
// unload epoch. Return addresses and saved registers are read from the stack each time. So threads
// that share a slot cost each other hits, never correct results. A slot is acquired with one atomic
// exchange; if it is in use (by another thread, or by the thread that this signal handler
// interrupted), the walk runs without the cache.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profiler/unwind/rules.hpp"

namespace memlab::profiler::unwind {

/// Access to the cache for the duration of one walk. Async-signal-safe.
class WalkCache {
  public:
    /// Acquires the calling thread's slot for a walk that begins at `sp`. `epoch`: unload_epoch().
    /// With 0, or if the slot is in use, every lookup misses and nothing is inserted.
    WalkCache(std::uint64_t epoch, std::uintptr_t sp);
    ~WalkCache() {
        if (slot_ != nullptr) {
            slot_->in_use.store(false, std::memory_order_release);
        }
    }
    WalkCache(const WalkCache&) = delete;
    WalkCache& operator=(const WalkCache&) = delete;

    /// One frame of a walk. A cached walk ends with a sentinel whose sp is UINTPTR_MAX.
    struct Frame {
        std::uintptr_t sp;
        std::uintptr_t address;
        Rule rule;  ///< a plain one; of a walk's last frame also `end`
    };

    // Successive lookups must have ascending stack pointers.

    /// The frame with this sp and address in a cached walk that began at the same sp, or null. The
    /// frames after it are the rest of that walk, by ascending sp.
    const Frame* match(std::uintptr_t sp, std::uintptr_t address) {
        while (match_->sp < sp) {
            ++match_;
        }
        if (is_at(*match_, sp, address)) {
            return match_;
        }
        return diverged_ ? nullptr : match_other_walk(sp, address);
    }

    /// The plain (or `end`) rule of a cached frame with this sp and address; else an empty one.
    Rule rule_at(std::uintptr_t sp, std::uintptr_t address) {
        if (const Frame* frame = match(sp, address)) [[likely]] {
            return frame->rule;
        }
        while (last_->sp < sp) {
            ++last_;
        }
        return is_at(*last_, sp, address) ? last_->rule : Rule();
    }

    /// Adds a frame to this walk.
    void append(std::uintptr_t sp, std::uintptr_t address, Rule rule) {
        if (is_at(*match_, sp, address) && match_->rule.word() == rule.word()) {
            append_matched(match_ + 1);
        } else {
            append_unmatched({sp, address, rule});
        }
    }

    /// Adds the frames from the last match() up to `end`, exclusive, to this walk.
    void append_matched(const Frame* end) {
        if (range_count_ != 0 && ranges_[range_count_ - 1].end == match_) {
            ranges_[range_count_ - 1].end = end;
        } else {
            append_range(end);
        }
        frame_count_ += static_cast<std::size_t>(end - match_);
        match_ = end;
        diverged_ = false;
    }

    /// Ends the walk and inserts it if it has frames that were not cached. Call only if the epoch
    /// has not changed since the constructor.
    void commit();

  private:
    static constexpr std::size_t max_frames = 95;
    /// One more for the sentinel.
    using Frames = std::array<Frame, max_frames + 1>;
    static constexpr unsigned set_bits = 6;
    static constexpr std::size_t sets = std::size_t{1} << set_bits;
    static constexpr std::size_t ways = 4;
    /// The walks whose initial sp has one hash. epochs[i] == 0: empty. Frames past sizes[i] are
    /// stale.
    struct alignas(64) Set {
        std::array<std::uint64_t, ways> epochs;
        std::array<std::uint32_t, ways> sizes;
        std::array<Frames, ways> walks;
    };
    /// The cache of the few threads with one hash. Untouched pages are never committed.
    struct alignas(64) Slot {
        std::atomic<bool> in_use;
        std::uint32_t set_overflows;  ///< walks whose set was full
        std::uint64_t last_epoch;     ///< of `last`
        const Frame* last;            ///< the last walk's frames
        /// The most recently used way of each set, two bits each: in the cache line of `in_use`, or
        /// finding the walk would cost one more miss.
        std::array<std::uint8_t, sets / 4> recent_ways;
        Frames pending;  ///< the present walk, once it is being recorded
        std::array<Set, sets> walks;

        std::size_t recent_way(std::size_t set) const {
            return recent_ways[set / 4] >> (set % 4 * 2) & 3U;
        }
        void set_recent_way(std::size_t set, std::size_t way) {
            const std::size_t change = (recent_way(set) ^ way) << (set % 4 * 2);
            recent_ways[set / 4] = static_cast<std::uint8_t>(recent_ways[set / 4] ^ change);
        }
    };
    static constexpr unsigned slot_bits = 4;
    static constinit std::array<Slot, std::size_t{1} << slot_bits> slots;
    static const Frame sentinel;

    template <unsigned bits>
    static std::size_t hash(std::uintptr_t value) {
        return value * 0x9e3779b97f4a7c15U >> (64 - bits);
    }
    static bool is_at(const Frame& frame, std::uintptr_t sp, std::uintptr_t address) {
        return frame.sp == sp && frame.address == address;
    }

    const Frame* match_other_walk(std::uintptr_t sp, std::uintptr_t address);
    void append_unmatched(const Frame& frame);
    void append_range(const Frame* end);
    void record(const Frame* begin, const Frame* end);
    /// Starts recording this walk from its first frame, if a way is chosen for it.
    void begin_insert();

    /// Consecutive frames of a cached walk that this one shares.
    struct Range {
        const Frame* begin;
        const Frame* end;
    };
    static constexpr std::size_t max_ranges = 8;

    Slot* slot_ = nullptr;
    const std::uint64_t epoch_;
    const std::size_t set_;
    std::size_t way_ = 0;  ///< of the set: the walk that `match_` points into
    const Frame* match_ = &sentinel;
    const Frame* last_ = &sentinel;
    std::size_t frame_count_ = 0;  ///< of this walk so far
    bool diverged_ = false;        ///< no cached walk continues like this one, until the next match

    enum class Insertion : std::uint8_t { undecided, recording, skipped };
    Insertion insertion_ = Insertion::undecided;
    std::array<Range, max_ranges> ranges_;  ///< undecided: this walk so far
    std::size_t range_count_ = 0;
    std::size_t victim_ = 0;  ///< recording: the way to replace
    Frame* next_ = nullptr;   ///< recording: where the next frame is written
};

}  // namespace memlab::profiler::unwind
