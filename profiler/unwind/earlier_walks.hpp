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

    /// The plain rule of the code at `address`, if an earlier walk was there with this stack
    /// pointer; else an empty one. Stack pointers are to be asked for from the lowest to the
    /// highest.
    Rule rule_at(std::uintptr_t sp, std::uintptr_t address) {
        while (same_way_->sp < sp) {
            ++same_way_;
        }
        if (same_way_->sp == sp && same_way_->address == address) [[likely]] {
            ++same_;
            return same_way_->rule;
        }
        while (last_->sp < sp) {
            ++last_;
        }
        return last_->sp == sp && last_->address == address ? last_->rule : Rule();
    }

    /// This walk was there too, or instead.
    void went(std::uintptr_t sp, std::uintptr_t address, Rule rule) {
        *next_ = {sp, address, rule};
        next_ += next_ != end_ ? 1 : 0;
    }

    /// The walk is over, and what it went through holds for the epoch that it began in.
    void keep();

  private:
    struct Frame {
        std::uintptr_t sp;
        std::uintptr_t address;
        Rule rule;
    };
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

    Place* place_ = nullptr;
    const std::uint64_t epoch_;
    const std::uint32_t way_;  ///< of the place's walks, this one's
    const Frame* same_way_ = &nothing;
    const Frame* last_ = &nothing;
    std::size_t same_ = 0;  ///< frames that the walk of the same way went through too
    Frame* next_ = &unkept_;
    Frame* end_ = &unkept_;
    Frame unkept_{};
};

}  // namespace memlab::profiler::unwind
