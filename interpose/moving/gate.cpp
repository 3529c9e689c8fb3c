#include "interpose/moving/gate.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>

#include "interpose/driver/reentrancy.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

// The calling thread's calls that have passed: only the outermost one is counted.
struct Passing {
    std::uint32_t depth;
    std::uint32_t slot;    // 0: none yet
    std::uint32_t others;  // of the calls that neither submit nor allocate
    bool waits;
    bool is_in_waiting;  // the thread, in Gate::waiting()
};
__attribute__((tls_model("initial-exec"))) constinit thread_local Passing passing{};

// Its destructor runs when a thread ends, wherever a handler or pthread_cancel() ended it.
constinit pthread_key_t end_of_thread{};
constinit bool has_end_of_thread = false;

// The mover has so long to say itself that the time is over.
constexpr std::uint64_t grace_ns = 200'000'000;
constexpr std::uint64_t look_for_end_ns = 50'000'000;
constexpr std::uint64_t look_again_ns = 1'000'000'000;

long gate_futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
                const timespec* timeout) {
    return ::syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

void take_slot(std::atomic<std::uint32_t>& next, unsigned slots) {
    if (passing.slot == 0) {
        passing.slot = 1 + next.fetch_add(1, std::memory_order_relaxed) % slots;
        if (has_end_of_thread) {
            pthread_setspecific(end_of_thread, &end_of_thread);
        }
    }
}

// A handler may run, or end the thread, between the two: then there is one too many, never too few.
void count_as_waiting(std::atomic<std::uint32_t>& waiting) {
    if (!passing.is_in_waiting) {
        waiting.fetch_add(1);
        passing.is_in_waiting = true;
    }
}

void count_as_going_on(std::atomic<std::uint32_t>& waiting) {
    if (passing.is_in_waiting) {
        passing.is_in_waiting = false;
        waiting.fetch_sub(1);
    }
}

bool can_be_given_up(Phase phase) {
    return phase == Phase::closing || phase == Phase::draining;
}

}  // namespace

/// The calling thread waits at the gate. One that does already is in a handler of the program's
/// that has interrupted the wait, and would wait for its own return: it wants the memory back.
class Gate::Waiting {
  public:
    explicit Waiting(Gate& gate) : gate_(gate), outer_(passing.waits) {
        if (outer_) {
            gate.want_back();
        }
        passing.waits = true;
    }
    ~Waiting() {
        passing.waits = outer_;
        count_as_going_on(gate_.waiting_);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    /// Again after a handler's own call has passed.
    void goes_on() { count_as_waiting(gate_.waiting_); }

  private:
    Gate& gate_;
    const bool outer_;
};

constinit Gate gate;

const char* name_of(Phase phase) {
    constexpr const char* names[] = {"running",    "closing", "draining",
                                     "moving out", "asleep",  "moving in"};
    return names[static_cast<std::size_t>(phase)];
}

void Gate::turn_on() noexcept {
    if (!on_.load()) {
        has_end_of_thread = pthread_key_create(&end_of_thread, thread_ended) == 0;
    }
    on_.store(true);
}

// What a thread has left by a jump, or by its end, is over. Inside of memlab it may have left a
// lock behind: then its call counts for good, so that nobody waits for that lock.
void Gate::thread_ended(void* /*unused*/) {
    count_as_going_on(gate.waiting_);
    passing.waits = false;
    if (thread_is_inside_memlab()) {
        return;
    }
    Slot& slot = gate.slots_[passing.slot - 1];
    if (passing.depth != 0) {
        passing.depth = 0;
        slot.count.fetch_sub(1);
    }
}

bool Gate::close(std::uint64_t deadline_ns, bool comes_back) noexcept {
    std::uint32_t word = word_.load();
    if (phase_of(word) != Phase::running) {
        return false;
    }
    deadline_ns_.store(deadline_ns);
    comes_back_.store(comes_back);
    wanted_back_.store(false);
    return word_.compare_exchange_strong(word, with(word, Phase::closing));
}

bool Gate::advance(Phase from, Phase to) noexcept {
    std::uint32_t word = word_.load();
    if (phase_of(word) != from ||
        !word_.compare_exchange_strong(word, with(word, to) | (word & shut_bit))) {
        return false;
    }
    gate_futex(word_, FUTEX_WAKE, INT_MAX, nullptr);
    return true;
}

// Behind draining the mover alone changes the word.
void Gate::change(std::uint32_t word) noexcept {
    word_.store(word);
    gate_futex(word_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Gate::shut() noexcept {
    const std::uint32_t word = word_.load();
    change(with(word, phase_of(word)) | shut_bit);
}

void Gate::unshut() noexcept {
    const std::uint32_t word = word_.load();
    change(with(word, phase_of(word)));
}

void Gate::open() noexcept {
    std::uint32_t word = word_.load();
    while (!word_.compare_exchange_weak(word, with(word, Phase::running))) {
    }
    gate_futex(word_, FUTEX_WAKE, INT_MAX, nullptr);
}

std::uint32_t Gate::under_way() const {
    std::uint32_t count = 0;
    for (const Slot& slot : slots_) {
        count += slot.count.load();
    }
    return count;
}

std::uint32_t Gate::others_under_way() const {
    std::uint32_t count = 0;
    for (const Slot& slot : slots_) {
        count += slot.others.load();
    }
    return count;
}

void Gate::want_back() noexcept {
    wanted_back_.store(true);
    ring();
}

void Gate::ring() noexcept {
    bells_.fetch_add(1);
    gate_futex(bells_, FUTEX_WAKE, 1, nullptr);
}

void Gate::sleep(std::uint32_t bells, std::uint64_t ns) noexcept {
    const timespec timeout = profiler::to_timespec(ns);
    gate_futex(bells_, FUTEX_WAIT, bells, &timeout);
}

void Gate::exiting() noexcept {
    exiting_thread_.store(static_cast<std::int32_t>(::syscall(SYS_gettid)));
}

void Gate::let_nobody_wait() noexcept {
    nobody_waits_.store(true);
    gate_futex(word_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Gate::forget_after_fork() noexcept {
    word_.store(0);
    nobody_waits_.store(false);
    wanted_back_.store(false);
    waiting_.store(0);
    exiting_thread_.store(0);
    stays_.store(nullptr);
    no_checkpoint_.store(nullptr);
    for (Slot& slot : slots_) {
        slot.count.store(0);
        slot.others.store(0);
    }
    passing.depth = 0;
    passing.others = 0;
    passing.is_in_waiting = false;
}

// All in one order (seq_cst): a call counts itself, then looks at the phase; who closes sets the
// phase, then looks at the counts.
bool Gate::enter() noexcept {
    if (passing.depth != 0) {
        ++passing.depth;
        return true;
    }
    take_slot(next_slot_, slots);
    std::atomic<std::uint32_t>& count = slots_[passing.slot - 1].count;
    for (;;) {
        count.fetch_add(1);
        // A callback inside of memlab's own call holds what the mover may need.
        if (phase_of(word_.load()) == Phase::running || thread_is_inside_memlab()) {
            passing.depth = 1;
            passing.waits = false;  // a handler may have left the wait
            count_as_going_on(waiting_);
            return true;
        }
        count.fetch_sub(1);
        Phase phase = Phase::running;
        if (!wait(false, &phase)) {
            return false;
        }
    }
}

void Gate::leave() noexcept {
    if (--passing.depth == 0) {
        slots_[passing.slot - 1].count.fetch_sub(1);
    }
}

bool Gate::enter_other() noexcept {
    if (passing.depth != 0 || passing.others != 0) {
        ++passing.others;
        return true;
    }
    take_slot(next_slot_, slots);
    std::atomic<std::uint32_t>& others = slots_[passing.slot - 1].others;
    for (;;) {
        others.fetch_add(1);
        if (!is_shut(word_.load()) || thread_is_inside_memlab()) {
            passing.others = 1;
            return true;
        }
        others.fetch_sub(1);
        if (!wait_while_shut()) {
            return false;
        }
    }
}

void Gate::leave_other() noexcept {
    if (--passing.others == 0 && passing.depth == 0) {
        slots_[passing.slot - 1].others.fetch_sub(1);
    }
}

bool Gate::wait_while_shut() noexcept {
    if (passing.depth != 0 || passing.others != 0 || thread_is_inside_memlab()) {
        return true;
    }
    const int saved_errno = errno;
    bool passes = true;
    Waiting waiting(*this);
    for (std::uint32_t word = word_.load(); is_shut(word) && passes; word = word_.load()) {
        waiting.goes_on();
        passes = wait_once(word);
    }
    errno = saved_errno;
    return passes;
}

bool Gate::work_is_over() noexcept {
    // What has passed is waited for by the mover; its own threads do the copying.
    if (passing.depth != 0 || thread_is_inside_memlab()) {
        return false;
    }
    Phase phase = phase_of(word_.load());
    return phase >= Phase::draining && wait(true, &phase) && phase > Phase::draining;
}

bool Gate::wait(bool for_work, Phase* ended_by) noexcept {
    const int saved_errno = errno;
    bool passes = true;
    Waiting waiting(*this);
    for (;;) {
        const std::uint32_t word = word_.load();
        const Phase phase = phase_of(word);
        if (phase == Phase::running || (for_work && phase != Phase::draining)) {
            *ended_by = phase;
            break;
        }
        waiting.goes_on();
        if (!wait_once(word)) {
            passes = false;
            break;
        }
    }
    errno = saved_errno;
    return passes;
}

bool Gate::wait_once(std::uint32_t word) noexcept {
    const std::uint32_t handlers = own_handlers_.load();
    const Phase phase = phase_of(word);
    const std::int32_t exiting = exiting_thread_.load();
    if (exiting != 0 &&
        (nobody_waits_.load() || exiting == static_cast<std::int32_t>(::syscall(SYS_gettid)))) {
        return false;
    }
    open_if_late(word);
    if (comes_back_.load() && phase == Phase::asleep && !wanted_back_.load()) {
        want_back();
    }
    // With a time-out: only then a handler's return ends the wait, whatever its flags are.
    const timespec timeout =
        profiler::to_timespec(can_be_given_up(phase) ? look_for_end_ns : look_again_ns);
    if (gate_futex(word_, FUTEX_WAIT, word, &timeout) != 0 && errno == EINTR &&
        own_handlers_.load() == handlers) {
        want_back();
    }
    return true;
}

void Gate::open_if_late(std::uint32_t word) noexcept {
    if (can_be_given_up(phase_of(word)) &&
        profiler::monotonic_ns() > deadline_ns_.load() + grace_ns &&
        word_.compare_exchange_strong(word, with(word, Phase::running))) {
        gate_futex(word_, FUTEX_WAKE, INT_MAX, nullptr);
    }
}

}  // namespace memlab::interpose
