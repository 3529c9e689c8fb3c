// What a thread's earlier walks went through, for the next one to expect.
//
// A program comes to its allocations by the same ways again and again, and between two of them it
// mostly changes the inner end of its stack: the outer frames stand where they stood, at the same
// instructions. A walk that asks the table of rules for each frame waits, one after the other, for
// words that the program's own work has driven out of the processor's caches, as it must know one
// frame to know where the next one is. A rule that lies where an earlier walk left it is found
// without knowing: in a row, and before it is needed. Two are looked at: the one that began with
// the same stack pointer, as whoever comes by the same way does, and the last one.
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
class EarlierWalks {
  public:
    /// What the calling thread's walks of `epoch` (unload_epoch()) went through, if it can be had;
    /// this one begins at `sp`. With epoch 0 nothing is expected and nothing kept.
    EarlierWalks(std::uint64_t epoch, std::uintptr_t sp);
    ~EarlierWalks() {
        if (place_ != nullptr) {
            place_->taken.store(false, std::memory_order_release);
        }
    }
    EarlierWalks(const EarlierWalks&) = delete;
    EarlierWalks& operator=(const EarlierWalks&) = delete;

    /// What a walk found at one stack pointer. The one after a walk's last has none: UINTPTR_MAX.
    struct Frame {
        std::uintptr_t sp;
        std::uintptr_t address;
        Rule rule;  ///< a plain one; of a walk's last frame also `end`
    };

    // Stack pointers are to be asked for from the lowest to the highest.

    /// The frame of the walk that began with the same stack pointer, if it was there with this
    /// one; else null. The frames behind it are those of that walk, with ever higher stack
    /// pointers.
    const Frame* same_way(std::uintptr_t sp, std::uintptr_t address) {
        while (same_way_->sp < sp) {
            ++same_way_;
        }
        return same_way_->sp == sp && same_way_->address == address ? same_way_ : nullptr;
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
        return last_->sp == sp && last_->address == address ? last_->rule : Rule();
    }

    /// This walk was there too, or instead.
    void went(std::uintptr_t sp, std::uintptr_t address, Rule rule) {
        if (alike_ != nullptr && same_way_ == alike_ && alike_->sp == sp &&
            alike_->address == address && alike_->rule.word() == rule.word()) {
            ++alike_;
            return;
        }
        if (alike_ != nullptr && alike_ - begin_ == most_frames) {
            return;  // the same as far as it is kept
        }
        write_down();
        *next_ = {sp, address, rule};
        next_ += next_ != end_ ? 1 : 0;
    }

    /// This walk went as the one that same_way() told of just now, through all that came before
    /// `end`.
    void went_along(const Frame* end) {
        if (same_way_ == alike_) [[likely]] {
            alike_ = end;
        } else {
            write_down();
            append(same_way_, end);
        }
        same_way_ = end;
    }

    /// The walk is over, and what it went through holds for the epoch that it began in.
    void keep();

  private:
    static constexpr std::size_t most_frames = 95;
    /// The last one of a walk that is kept stands above all stacks.
    using Frames = std::array<Frame, most_frames + 1>;
    struct Walk {
        std::uint64_t epoch;  ///< that its rules hold for; 0: there is none
        Frames frames;
    };
    static constexpr unsigned walk_bits = 8;
    /// Of a few threads. Memory that no walk has used is not there.
    struct alignas(64) Place {
        std::atomic<bool> taken;
        std::uint32_t last;  ///< of `walks`, the one that was kept last
        Frames present;      ///< of the walk that goes on
        std::array<Walk, std::size_t{1} << walk_bits> walks;
    };
    static constexpr unsigned place_bits = 4;
    static constinit std::array<Place, std::size_t{1} << place_bits> places;
    static const Frame nothing;

    template <unsigned bits>
    static std::size_t spread(std::uintptr_t value) {
        return value * 0x9e3779b97f4a7c15U >> (64 - bits);
    }

    void append(const Frame* begin, const Frame* end);
    /// What was the same so far is written down, for it will not stay so.
    void write_down() {
        if (alike_ != nullptr) {
            append(begin_, alike_);
            alike_ = nullptr;
        }
    }

    Place* place_ = nullptr;
    const std::uint64_t epoch_;
    const std::uint32_t way_;        ///< of the place's walks, this one's
    const Frame* begin_ = &nothing;  ///< of the walk of the same way
    const Frame* same_way_ = &nothing;
    const Frame* last_ = &nothing;
    /// While this walk was the same as the one of the same way: where that one goes on. Then
    /// nothing is written down.
    const Frame* alike_ = &nothing;
    Frame* next_ = &unkept_;
    Frame* end_ = &unkept_;
    Frame unkept_{};
};

}  // namespace memlab::profiler::unwind
