// What a thread's last walk went through, for the next one to expect.
//
// Between two allocations a program mostly changes the inner end of its stack: the outer frames
// stand where they stood, at the same instructions. A walk that asks the table of rules for each of
// them waits, one after the other, for words that the program's own work has driven out of the
// processor's caches, as it must know one frame to know where the next one is. A rule that lies
// where the last walk left it is found without knowing: in a row, and before it is needed.
//
// Nothing is believed of the last walk but what the table itself says: the rule of a code address,
// during one unload epoch. Return addresses and saved registers are read from the stack each time.
// So it does not matter whose walk it was; threads that share a place disturb each other's
// expectations, not their results. A place is taken without waiting, or else done without: a
// signal handler that walks while the thread it interrupted does finds it taken.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profiler/unwind/rules.hpp"

namespace memlab::profiler::unwind {

/// During one walk. Async-signal-safe.
class LastWalk {
  public:
    /// What the calling thread's last walk of `epoch` (unload_epoch()) went through, if it can be
    /// had. With epoch 0 nothing is expected and nothing kept.
    explicit LastWalk(std::uint64_t epoch);
    ~LastWalk() {
        if (place_ != nullptr) {
            place_->taken.store(false, std::memory_order_release);
        }
    }
    LastWalk(const LastWalk&) = delete;
    LastWalk& operator=(const LastWalk&) = delete;

    /// The plain rule of the code at `address`, if the last walk was there with this stack pointer;
    /// else an empty one. Stack pointers are to be asked for from the lowest to the highest.
    Rule rule_at(std::uintptr_t sp, std::uintptr_t address) {
        while (expected_->sp < sp) {
            ++expected_;
        }
        return expected_->sp == sp && expected_->address == address ? expected_->rule : Rule();
    }

    /// This walk was there too, or instead.
    void went(std::uintptr_t sp, std::uintptr_t address, Rule rule) {
        *next_ = {sp, address, rule};
        next_ += next_ != last_ ? 1 : 0;
    }

    /// The walk is over, and what it went through holds for the epoch that it began in.
    void keep();

  private:
    struct Frame {
        std::uintptr_t sp;
        std::uintptr_t address;
        Rule rule;
    };
    static constexpr std::size_t most_frames = 127;
    /// The last one stands above all stacks.
    using Frames = std::array<Frame, most_frames + 1>;

    struct alignas(64) Place {
        std::atomic<bool> taken;
        bool second;          ///< which of the walks is the last one
        std::uint64_t epoch;  ///< that its rules hold for; 0: there is none
        std::array<Frames, 2> walks;
    };
    static constexpr unsigned place_bits = 6;
    static constinit std::array<Place, std::size_t{1} << place_bits> places;
    static const Frame nothing;

    static Place& place_of_thread();

    Place* place_ = nullptr;
    const std::uint64_t epoch_;
    const Frame* expected_ = &nothing;
    Frame* next_ = &unkept_;
    Frame* last_ = &unkept_;
    Frame unkept_{};
};

}  // namespace memlab::profiler::unwind
