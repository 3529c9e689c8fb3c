// Moves the pool's memory out of the GPU and back, at unchanged addresses, while the program waits
// at the gate (docs/step-aside.md).
//
// With the driver's engine the driver's own checkpoint takes what is left, or all of it
// (driver_engine.hpp).
//
// One thread of memlab's own does all of it, on request of the control channel, of a signal or of
// the program. Until the first chunk is unmapped each step has a way back: whatever fails there,
// the gate opens again and the program goes on. From then on the way is back to the GPU: the mover
// waits for memory as long as that takes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "interpose/driver/function_ref.hpp"
#include "interpose/memory/memory.hpp"
#include "interpose/moving/driver_engine.hpp"
#include "interpose/moving/gate.hpp"
#include "interpose/moving/kept_memory.hpp"
#include "interpose/moving/managed_memory.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

enum class Engine : std::uint8_t { automatic, pool, driver, both };

struct Movable;

/// What is to leave the GPU, and where to.
struct YieldOrder {
    std::uint64_t kept_bytes = 0;  ///< of each device stay there
    CUdevice device = -1;          ///< -1: all
    std::string folder;            ///< of the file that takes it; empty: host memory
    Engine engine = Engine::automatic;
    std::uint64_t timeout_ns = default_timeout_ns;  ///< of the program's work
    bool comes_back = false;                        ///< the program's next work restores
    bool only_prepare = false;                      ///< the host memory for it; nothing moves

    static constexpr std::uint64_t default_timeout_ns = 2'000'000'000;
};

/// What became of an order.
struct MoveOutcome {
    std::string problem;      ///< why nothing was moved; empty: it was
    std::string text;         ///< what was done, in a sentence
    std::uint64_t bytes = 0;  ///< that left the GPU, or came back

    static MoveOutcome not_moved(std::string problem) {
        MoveOutcome outcome;
        outcome.problem = std::move(problem);
        return outcome;
    }
};

/// Thread-safety: all functions, from any thread.
class Mover {
  public:
    /// `refusal`: a sentence that says why this process cannot step aside, by what lies outside of
    /// its memory; empty: it can. May throw std::bad_alloc.
    Mover(Memory& memory, std::string (*refusal)(Memory&)) : memory_(memory), refusal_(refusal) {}
    Mover(const Mover&) = delete;
    Mover& operator=(const Mover&) = delete;

    /// Starts the thread, and lets the calls pass the gate from now on. False: there is none.
    bool start() noexcept;

    enum class Wanted : std::uint8_t { nothing, out, in };
    static constexpr std::uint64_t forever = ~std::uint64_t{0};

    /// An order that is carried out.
    struct Ticket {
        std::uint64_t number = 0;  ///< 0: it is not
        std::uint64_t since_ns = 0;
        std::uint64_t max_wait_ns = 0;
    };
    /// Orders to step aside, or to come back. Without a number *outcome is what became of it. May
    /// throw std::bad_alloc.
    Ticket order(Wanted wanted, const YieldOrder& order, std::uint64_t max_wait_ns,
                 MoveOutcome* outcome);
    /// Whether it is done, or has taken so long, or, unless that is forever, waits for memory of
    /// the GPU: then *outcome says that it goes on. May throw std::bad_alloc.
    bool is_over(const Ticket& ticket, MoveOutcome* outcome);

    /// Steps aside, or comes back, and waits for that. May throw std::bad_alloc. Call without any
    /// of memlab's locks, and not in a call that has passed the gate.
    void yield(const YieldOrder& order, MoveOutcome* outcome);
    void restore(MoveOutcome* outcome);

    /// Steps aside if the program runs, else brings it back. Async-signal-safe.
    void toggle() noexcept;

    /// The process ends: nothing begins after this. Waits for what is under way, a second at most.
    void stop() noexcept;

    /// The process ends by exit() of the calling thread, as stop(). While the driver is locked that
    /// thread may be caught by it for good: then, after a second, `end` is called, which must end
    /// the process.
    void stop_at_exit(void (*end)()) noexcept;

    /// While the gate is shut: the block at this address is freed when the memory is back. False:
    /// it is none of a pool's, or the gate is not shut. May throw std::bad_alloc.
    bool free_later(CUdeviceptr address);

    /// At the end of the process, behind stop(): what was to be freed later is recorded as freed.
    void record_deferred_frees() noexcept;

    const DriverEngine& driver_engine() const { return driver_; }

    /// In a forked child. Async-signal-safe.
    void forget_after_fork() noexcept;

    struct State {
        Phase phase = Phase::running;
        std::uint64_t since_ns = 0;  ///< monotonic_ns() of the last change; 0: none
        std::uint64_t away_bytes = 0;
        std::uint32_t waiting = 0;  ///< threads at the gate
        bool short_of_memory = false;
        bool by_driver = false;  ///< away by the driver's checkpoint, too
        bool lost = false;       ///< it does not come back
    };
    State state() const;

  private:
    static void* run(void* self);
    void loop();
    void take_orders();
    void finish(MoveOutcome outcome) noexcept;
    void wait_for(const Ticket& ticket, MoveOutcome* outcome);

    /// What an order uses here.
    struct Engines {
        bool pool = false;
        bool driver = false;
    };
    MoveOutcome prepare(const YieldOrder& order);
    std::string choose(const YieldOrder& order, const Movable& movable, Engines* engines);
    std::string host_problem(const YieldOrder& order, const Movable& movable,
                             const Engines& engines);
    MoveOutcome move_out(const YieldOrder& order);
    MoveOutcome move_pool_out(const YieldOrder& order);
    std::string quiesce(const YieldOrder& order);
    void give_up() noexcept;
    void go_back() noexcept;

    MoveOutcome move_in() noexcept;
    bool come_back_by_driver(std::uint64_t begin_ns, std::string* problem);
    using Deferred = std::vector<std::pair<CUcontext, CUdeviceptr>>;
    Deferred take_deferred() noexcept;
    void free_what_was_deferred() noexcept;
    void end_if_caught() noexcept;
    void drop_what_is_free() noexcept;
    /// Why a try failed: no room on a device, or something else.
    struct Lack {
        CUdevice device = -1;
        std::uint64_t bytes = 0;      ///< 0: something else
        const char* other = nullptr;  ///< that, in words
        std::string problem = {};     ///< and what it said
    };
    /// What came back: its contents, to be destroyed when the program goes on.
    struct Returned {
        std::vector<VmmPages::AwayChunks> chunks;
        std::vector<std::unique_ptr<HeldContents>> of_program;
        std::uint64_t bytes = 0;
    };
    bool try_to_move_in(Lack* lack, Returned* back);
    void wait_to_try_again(const Lack& lack, std::uint64_t since_ns, bool* told) noexcept;
    void set_phase_time() noexcept;

    Memory& memory_;
    std::string (*const refusal_)(Memory&);
    std::atomic<bool> started_{false};
    std::atomic<bool> stopping_{false};
    std::atomic<bool> idle_{true};
    std::atomic<bool> toggle_{false};
    std::atomic<bool> short_of_memory_{false};
    std::atomic<std::uint64_t> phase_since_ns_{0};
    std::atomic<std::uint64_t> tickets_done_{0};
    std::shared_ptr<PreparedMemory> prepared_;  ///< the mover's
    ManagedMemory managed_;                     ///< the mover's
    DriverEngine driver_{stopping_};
    std::atomic<void (*)()> end_process_{nullptr};

    threads::Mutex deferred_mutex_;
    Deferred deferred_ MEMLAB_GUARDED_BY(deferred_mutex_);

    threads::Mutex mutex_;
    Wanted wanted_ MEMLAB_GUARDED_BY(mutex_) = Wanted::nothing;
    YieldOrder order_ MEMLAB_GUARDED_BY(mutex_);
    std::uint64_t tickets_ MEMLAB_GUARDED_BY(mutex_) = 0;
    /// Of the latest tickets, at their numbers' remainders.
    std::array<MoveOutcome, 8> outcomes_ MEMLAB_GUARDED_BY(mutex_);
};

}  // namespace memlab::interpose
