// What a thread's earlier walks went through, for the next one to prefetch.
//
// A program comes to its allocations by the same ways again and again, and between two of them it
// mostly changes the inner end of its stack: the outer frames stand where they stood, at the same
// instructions. A walk that asks the table of rules for each frame waits, one after the other, for
// words that the program's own work has driven out of the processor's caches, as it must know one
// frame to know where the next one is. A rule that lies where an earlier walk left it is found
// without knowing: in a row, and before it is needed. Those that began with the same stack pointer
// are looked at, as whoever comes by the same way does: one of them, and where this walk leaves it,
// the others, for one that goes on as this one does. And the last one of all.
//
// A walk all of whose frames are known of earlier ones teaches nothing and is not kept, whether it
// went as one of them or partly as one and partly as another.
//
// Nothing is believed of them but what the table itself says: the rule of a code address, during
// one unload epoch. Return addresses and saved registers are read from the stack each time. So it
// does not matter whose walk it was; threads that share a place disturb each other's expectations,
// not their results. A place is taken without waiting, or else done without: a signal handler that
// walks while the thread it interrupted does finds it taken.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profiler/unwind/rules.hpp"

namespace memlab::profiler::unwind {

/// During one walk. Async-signal-safe.
class WalkCache {
  public:
    /// What the calling thread's walks of `epoch` (unload_epoch()) went through, if it can be had;
    /// this one begins at `sp`. With epoch 0 nothing is expected and nothing kept.
    WalkCache(std::uint64_t epoch, std::uintptr_t sp);
    ~WalkCache() {
        if (place_ != nullptr) {
            place_->taken.store(false, std::memory_order_release);
        }
    }
    WalkCache(const WalkCache&) = delete;
    WalkCache& operator=(const WalkCache&) = delete;

    /// What a walk found at one stack pointer. The one after a walk's last has none: UINTPTR_MAX.
    struct Frame {
        std::uintptr_t sp;
        std::uintptr_t address;
        Rule rule;  ///< a plain one; of a walk's last frame also `end`
    };

    // Stack pointers are to be asked for from the lowest to the highest.

    /// The frame of a walk that began with the same stack pointer and was there with this one; null
    /// if there is none. The frames behind it are those of that walk, with ever higher stack
    /// pointers.
    const Frame* same_way(std::uintptr_t sp, std::uintptr_t address) {
        while (same_way_->sp < sp) {
            ++same_way_;
        }
        if (is_at(*same_way_, sp, address)) {
            return same_way_;
        }
        return left_ ? nullptr : other_way(sp, address);
    }

    /// The plain (or `end`) rule of the code at `address`, if an earlier walk was there with this
    /// stack pointer; else an empty one.
    Rule rule_at(std::uintptr_t sp, std::uintptr_t address) {
        if (const Frame* frame = same_way(sp, address)) [[likely]] {
            return frame->rule;
        }
        while (last_->sp < sp) {
            ++last_;
        }
        return is_at(*last_, sp, address) ? last_->rule : Rule();
    }

    /// This walk was there too, or instead.
    void went(std::uintptr_t sp, std::uintptr_t address, Rule rule) {
        if (is_at(*same_way_, sp, address) && same_way_->rule.word() == rule.word()) {
            went_along(same_way_ + 1);
        } else {
            went_elsewhere({sp, address, rule});
        }
    }

    /// This walk went as the one that same_way() told of just now, through all that came before
    /// `end`.
    void went_along(const Frame* end) {
        if (parts_ != 0 && part_[parts_ - 1].end == same_way_) {
            part_[parts_ - 1].end = end;
        } else {
            went_another_part(end);
        }
        frames_ += static_cast<std::size_t>(end - same_way_);
        same_way_ = end;
        left_ = false;
    }

    /// The walk is over, and what it went through holds for the epoch that it began in.
    void keep();

  private:
    static constexpr std::size_t max_frames = 95;
    /// The last one of a walk that is kept stands above all stacks.
    using Frames = std::array<Frame, max_frames + 1>;
    static constexpr unsigned set_bits = 6;
    static constexpr std::size_t sets = std::size_t{1} << set_bits;
    static constexpr std::size_t set_size = 4;
    /// Of walks that began with stack pointers of one hash. An epoch is that which a walk's rules
    /// hold for, 0 where there is none; behind a walk's size lies what is left of another one.
    struct alignas(64) Set {
        std::array<std::uint64_t, set_size> epochs;
        std::array<std::uint32_t, set_size> sizes;
        std::array<Frames, set_size> walks;
    };
    /// Of a few threads. Memory that no walk has used is not there.
    struct alignas(64) Place {
        std::atomic<bool> taken;
        std::uint32_t crowded;     ///< how many walks found no room in their set
        std::uint64_t last_epoch;  ///< of the walk that was the last
        const Frame* last;         ///< its frames
        /// Of each set's walks the last one, in two bits: in the cache line of `taken`, or to get
        /// at the walk would take one more wait for memory.
        std::array<std::uint8_t, sets / 4> recent;
        Frames present;  ///< of the walk that goes on, once it learns
        std::array<Set, sets> walks;

        std::size_t recent_of(std::size_t set) const {
            return recent[set / 4] >> (set % 4 * 2) & 3U;
        }
        void set_recent(std::size_t set, std::size_t way) {
            const std::size_t change = (recent_of(set) ^ way) << (set % 4 * 2);
            recent[set / 4] = static_cast<std::uint8_t>(recent[set / 4] ^ change);
        }
    };
    static constexpr unsigned place_bits = 4;
    static constinit std::array<Place, std::size_t{1} << place_bits> places;
    static const Frame nothing;

    template <unsigned bits>
    static std::size_t spread(std::uintptr_t value) {
        return value * 0x9e3779b97f4a7c15U >> (64 - bits);
    }
    static bool is_at(const Frame& frame, std::uintptr_t sp, std::uintptr_t address) {
        return frame.sp == sp && frame.address == address;
    }

    const Frame* other_way(std::uintptr_t sp, std::uintptr_t address);
    void went_elsewhere(const Frame& frame);
    void went_another_part(const Frame* end);
    void append(const Frame* begin, const Frame* end);
    /// This walk is another one than those that are kept. It is written down from its beginning, if
    /// it is to take the room of one.
    void learn();

    /// Frames in a row of an earlier walk, that this one went along.
    struct Part {
        const Frame* begin;
        const Frame* end;
    };
    static constexpr std::size_t max_parts = 8;

    Place* place_ = nullptr;
    const std::uint64_t epoch_;
    const std::size_t set_;  ///< of the place's sets, this walk's
    std::size_t way_ = 0;    ///< of the set's walks, the one that this walk goes along
    const Frame* same_way_ = &nothing;
    const Frame* last_ = &nothing;
    std::size_t frames_ = 0;  ///< that this walk went through
    bool left_ = false;       ///< no known way goes on as this walk does; until it is on one again

    enum class Learning : std::uint8_t { nothing_yet, writing, never };
    Learning learning_ = Learning::nothing_yet;
    std::array<Part, max_parts> part_;  ///< what it went along, while there is nothing to learn
    std::size_t parts_ = 0;
    std::size_t room_ = 0;   ///< writing: which of the set's walks makes room
    Frame* next_ = nullptr;  ///< writing: where the next frame goes
};

}  // namespace memlab::profiler::unwind
