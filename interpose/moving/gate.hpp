// The gate of yield and restore (docs/step-aside.md): which calls of the program go on, and which
// wait, while its memory is away.
//
// A call that submits work or allocates passes the gate before it takes any lock of memlab's, and
// is counted while it is under way. Who closes the gate waits until none is: from then on nothing
// is submitted. Each side first says what it does, then looks at what the other says, so one of
// them sees the other.
//
// What waits at a closed gate holds no lock of memlab's, and never waits for a mover that is stuck:
// while the device is drained the waiting threads themselves open the gate when the time is over.
//
// Before the driver is locked by its own checkpoint the gate is shut: no call of the driver passes
// then, whatever it does, and all that memlab makes of a call is counted until it is over. So no
// thread can be caught by the driver's lock while it holds one of memlab's.
//
// With MEMLAB_YIELD=off nobody is counted: a load and a branch.
#pragma once

#include <atomic>
#include <cstdint>

namespace memlab::interpose {

/// For no_checkpoint_from_now_on().
inline constexpr const char* shared_with_processes =
    "it has shared memory or events with other processes, which the driver does not checkpoint";

/// What happens to the program's memory. The gate is open while it runs.
enum class Phase : std::uint8_t {
    running,
    closing,     ///< waits for the calls under way
    draining,    ///< waits for the device's work
    moving_out,  ///< from here on no way back but to move in
    asleep,
    moving_in,
};
/// "running", "moving out", ...
const char* name_of(Phase phase);

/// Thread-safety: all functions, from any thread. Constant-initialized: works before main.
class Gate {
  public:
    /// Whether calls are counted at all. Only to be set before anything could be yielded.
    bool on() const { return on_.load(std::memory_order_relaxed); }
    void turn_on() noexcept;

    Phase phase() const { return phase_of(word_.load()); }
    /// Another number after each change of the phase, or of is_shut().
    std::uint32_t moment() const { return word_.load(); }

    /// Closes the gate until that time, if it is open. `comes_back`: the first call that waits
    /// brings the memory back. False: it was closed already.
    bool close(std::uint64_t deadline_ns, bool comes_back) noexcept;
    /// From one phase to another; false where the gate is in a third one, since the time was over.
    bool advance(Phase from, Phase to) noexcept;
    /// Lets everybody pass.
    void open() noexcept;

    /// The mover's: no call passes from now on, until unshut() or open(). All work is complete.
    void shut() noexcept;
    void unshut() noexcept;
    bool is_shut() const { return is_shut(word_.load()); }
    /// How many calls that neither submit nor allocate are under way. Falls while it is shut.
    std::uint32_t others_under_way() const;
    /// Waits until the gate is not shut. False: the process ends by this thread.
    bool wait_while_shut() noexcept;

    /// For a call that waits for the device's work: waits here while the device is drained, so that
    /// the driver is left to the mover. True: all work is complete, and nothing is to wait for.
    bool work_is_over() noexcept;

    /// How many calls are under way. Meaningful while the gate is closed: then it only falls.
    std::uint32_t under_way() const;

    /// Somebody wants the memory back: a waiting call, a signal of the program's.
    bool wanted_back() const { return wanted_back_.load(); }
    /// The same of anybody; wakes the mover. Async-signal-safe.
    void want_back() noexcept;

    /// The mover's: sleeps until ring() was called since it returned `bells`, or for so long.
    std::uint32_t bells() const { return bells_.load(); }
    void sleep(std::uint32_t bells, std::uint64_t ns) noexcept;
    /// Async-signal-safe.
    void ring() noexcept;

    /// From now on this process does not step aside, since of this: a sentence that lives for good.
    void stay_from_now_on(const char* why) { stays_.store(why); }
    /// Null: it may.
    const char* why_it_stays() const { return stays_.load(); }

    /// The same of the driver's checkpoint alone.
    void no_checkpoint_from_now_on(const char* why) { no_checkpoint_.store(why); }
    const char* why_no_checkpoint() const { return no_checkpoint_.load(); }

    /// A handler of memlab's runs: what it interrupted was not interrupted by the program.
    void own_handler_ran() noexcept { own_handlers_.fetch_add(1); }

    /// The process ends by the calling thread, whose calls wait for nobody from now on.
    void exiting() noexcept;
    /// The exit waits for a thread that waits here: nobody does any more, as if it were over.
    void let_nobody_wait() noexcept;
    /// 0: none does.
    std::int32_t exiting_thread() const { return exiting_thread_.load(); }

    /// In a forked child, in which nothing is away and nobody waits.
    void forget_after_fork() noexcept;

    /// How many threads wait.
    std::uint32_t waiting() const { return waiting_.load(); }

  private:
    friend class Passage;
    friend class OtherPassage;
    class Waiting;

    static constexpr std::uint32_t shut_bit = 0x8;
    static Phase phase_of(std::uint32_t word) { return static_cast<Phase>(word & 0x7); }
    static bool is_shut(std::uint32_t word) { return (word & shut_bit) != 0; }
    static std::uint32_t with(std::uint32_t word, Phase phase) {
        return ((word & ~0xfU) + 0x10) | static_cast<std::uint32_t>(phase);
    }
    void change(std::uint32_t word) noexcept;
    static void thread_ended(void* unused);
    /// False: the process ends by this thread, and the gate is shut.
    bool enter_other() noexcept;
    void leave_other() noexcept;
    /// False: the process ends by this thread, and the gate is closed.
    bool enter() noexcept;
    void leave() noexcept;
    /// Until the gate is open; `for_work`: no longer than the device is drained. *phase: the one
    /// that ended it. False: the process ends by this thread.
    bool wait(bool for_work, Phase* phase) noexcept;
    /// One look of a thread that waits. False: the process ends by it.
    bool wait_once(std::uint32_t word) noexcept;
    void open_if_late(std::uint32_t word) noexcept;

    static constexpr unsigned slots = 16;
    struct alignas(64) Slot {
        std::atomic<std::uint32_t> count{0};
        std::atomic<std::uint32_t> others{0};
    };

    std::atomic<bool> on_{false};
    alignas(64) std::atomic<std::uint32_t> word_{0};  ///< a futex: the phase, and a number
    std::atomic<std::uint64_t> deadline_ns_{0};
    std::atomic<bool> comes_back_{false};
    std::atomic<bool> wanted_back_{false};
    std::atomic<std::uint32_t> bells_{0};  ///< a futex
    std::atomic<std::uint32_t> waiting_{0};
    std::atomic<std::uint32_t> own_handlers_{0};
    std::atomic<std::int32_t> exiting_thread_{0};
    std::atomic<bool> nobody_waits_{false};
    std::atomic<std::uint32_t> next_slot_{0};
    std::atomic<const char*> stays_{nullptr};
    std::atomic<const char*> no_checkpoint_{nullptr};
    Slot slots_[slots];
};

extern constinit Gate gate;

/// A call that submits or allocates. Make it before any lock; nested ones pass.
class Passage {
  public:
    [[gnu::always_inline]] explicit Passage(bool needed = true) {
        if (needed && gate.on()) [[unlikely]] {
            counted_ = gate.enter();
            refused_ = !counted_;
        }
    }
    [[gnu::always_inline]] ~Passage() {
        if (counted_) [[unlikely]] {
            gate.leave();
        }
    }
    Passage(const Passage&) = delete;
    Passage& operator=(const Passage&) = delete;

    /// The process is ending and the memory is away: the call must not be made.
    [[gnu::always_inline]] bool refused() const { return refused_; }
    /// Nothing leaves as long as this exists.
    bool counted() const { return counted_; }

  private:
    bool counted_ = false;
    bool refused_ = false;
};

/// What memlab makes of any other call of the driver, or does in a thread of its own that calls the
/// driver. Make it before any lock; nested ones pass.
class OtherPassage {
  public:
    [[gnu::always_inline]] OtherPassage() {
        if (gate.on()) [[unlikely]] {
            counted_ = gate.enter_other();
            refused_ = !counted_;
        }
    }
    [[gnu::always_inline]] ~OtherPassage() {
        if (counted_) [[unlikely]] {
            gate.leave_other();
        }
    }
    OtherPassage(const OtherPassage&) = delete;
    OtherPassage& operator=(const OtherPassage&) = delete;

    [[gnu::always_inline]] bool refused() const { return refused_; }
    /// A thread of memlab's own never waits: it must not call the driver now.
    [[gnu::always_inline]] bool must_not_call() const { return counted_ && gate.is_shut(); }

  private:
    bool counted_ = false;
    bool refused_ = false;
};

}  // namespace memlab::interpose
