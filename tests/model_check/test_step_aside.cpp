// The protocol of yield and restore (docs/step-aside.md), in every order of its steps: two threads
// of the program, the mover, the device, a clock, and whoever gives orders. A step is what one of
// them does between two looks of the others': one access to what they share.
//
// What is checked in each state stands in problem_of(); and from each state in which a thread waits
// or an order is under way there must be a way on. The model itself is checked: each of its rules
// is broken once, which must be found.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/catch.hpp"

namespace memlab::model_check {
namespace {

enum class AsidePhase : std::uint8_t { running, closing, draining, moving_out, asleep, moving_in };

/// Where a thread of the program is.
enum class At : std::uint8_t {
    outside,
    counted,      ///< it has counted itself and has not looked yet
    passed,       ///< in the driver, before it has submitted
    submitted,    ///< in the driver, behind that
    taking_back,  ///< it saw a closed gate and is still counted
    waiting,
    nested,            ///< a call within one that has passed, before it has looked
    synchronizing,     ///< it calls to wait for the device, before it has looked
    waiting_to_drain,  ///< such a call, while the driver is left to the mover
    in_driver_to_wait,
    other_counted,      ///< another call: counted apart, before it has looked
    other_taking_back,  ///< the gate is shut
    other_waiting,
    in_other,  ///< it may hold a lock of memlab's, and call the driver
    ended,
};

/// Where the mover is.
enum class Moves : std::uint8_t {
    idle,
    closing,    ///< waits for the count
    recording,  ///< in the driver: it may be stuck there
    draining,   ///< waits for the events
    deciding,   ///< all is complete: it exchanges the phase
    copying,
    unmapping,
    shutting,  ///< waits for the other calls
    locking,
    checkpointing,
    finding,  ///< its helper is lost: it asks another one for the driver's state
    asleep,
    restoring,  ///< waits for memory
    unlocking,
    getting,  ///< waits for memory
    filling,
};

/// Of this process, as the driver has it.
enum class Process : std::uint8_t { running, locked, checkpointed };

enum class Broken : std::uint8_t {
    nothing,
    looks_before_counting,  ///< a call looks at the phase, then counts itself
    does_not_drain,
    no_time_out,
    mover_alone_opens,  ///< nobody opens the gate of a mover that is stuck
    blind_exchange,     ///< moving out begins whatever the phase has become
    unmaps_first,       ///< before copying is over, which may fail
    nested_waits,
    answers_early,    ///< a call that waits for the device is answered while that is drained
    locks_at_once,    ///< without waiting for the other calls
    believes_helper,  ///< whose answer is missing has done nothing
    unshuts_first,    ///< before it is unlocked
};

struct Thread {
    At at = At::outside;
    bool holds_lock = false;  ///< of memlab's: only behind the gate
    std::uint8_t calls = 0;   ///< so far
};

constexpr std::size_t thread_count = 2;
constexpr std::uint8_t most_calls = 2;
constexpr std::uint8_t most_orders = 2;

struct State {
    AsidePhase phase = AsidePhase::running;
    Moves mover = Moves::idle;
    std::array<Thread, thread_count> threads = {};
    std::uint8_t count = 0;     ///< of calls under way
    std::uint8_t work = 0;      ///< on the device
    std::uint8_t recorded = 0;  ///< of it, behind which the event is
    std::uint8_t orders = 0;
    bool late = false;        ///< the time of this order is over
    bool comes_back = false;  ///< the program's next call restores
    bool wanted_back = false;
    bool unmapped = false;
    bool copied = false;
    bool stuck = false;  ///< the driver does not return to the mover
    bool lied = false;   ///< a call that waits for the device was answered before it was idle
    bool room = true;    ///< on the GPU
    bool shut = false;
    std::uint8_t others = 0;  ///< calls that neither submit nor allocate
    Process process = Process::running;
};
static_assert(sizeof(State) <= 32);

struct Found {
    std::uint64_t states = 0;
    std::string problem;
};

class Model {
  public:
    explicit Model(Broken broken) : broken_(broken) {}

    /// All states that can be reached.
    Found explore() {
        Found found;
        std::deque<State> open;
        add(State{}, open);
        while (!open.empty()) {
            const State state = open.front();
            open.pop_front();
            ++found.states;
            found.problem = problem_of(state);
            if (!found.problem.empty()) {
                return found;
            }
            for (const State& next : steps(state)) {
                add(next, open);
                before_[key_of(next)].push_back(key_of(state));
            }
        }
        found.problem = who_waits_for_ever();
        return found;
    }

  private:
    using Key = std::string;
    static Key key_of(const State& state) {
        // No padding: all members are bytes.
        return {reinterpret_cast<const char*>(&state), sizeof state};
    }

    void add(const State& state, std::deque<State>& open) {
        if (seen_.emplace(key_of(state), state).second) {
            open.push_back(state);
        }
    }

    static bool gate_is_closed(const State& state) { return state.phase != AsidePhase::running; }

    static std::string problem_of(const State& state) {
        for (const Thread& thread : state.threads) {
            if (thread.at == At::waiting && thread.holds_lock) {
                return "a thread waits with a lock of memlab's";
            }
            const bool in_driver =
                thread.at == At::passed || thread.at == At::submitted || thread.at == At::nested;
            if (in_driver && state.phase >= AsidePhase::draining) {
                return "a call is under way behind closing";
            }
        }
        const bool locked = state.process != Process::running;
        if (locked && !state.shut) {
            return "calls reach the driver while that is locked";
        }
        if (locked && std::any_of(state.threads.begin(), state.threads.end(),
                                  [](const Thread& one) { return one.at == At::in_other; })) {
            return "the locked driver catches a thread with a lock of memlab's";
        }
        if (locked && (state.mover == Moves::idle || !gate_is_closed(state))) {
            return "the process is left locked";
        }
        if (state.lied) {
            return "work goes on that a thread was told is complete";
        }
        if (state.unmapped && state.work != 0) {
            return "memory is away while work uses it";
        }
        if (state.unmapped && !gate_is_closed(state)) {
            return "the gate is open while memory is away";
        }
        if (state.unmapped && !state.copied) {
            return "memory is away without its contents";
        }
        return {};
    }

    std::vector<State> steps(const State& state) const {
        std::vector<State> all;
        for (std::size_t i = 0; i < thread_count; ++i) {
            steps_of_thread(state, i, all);
        }
        steps_of_mover(state, all);
        steps_of_others(state, all);
        return all;
    }

    void steps_of_thread(const State& state, std::size_t which, std::vector<State>& all) const {
        State next = state;
        Thread& thread = next.threads[which];
        const auto step = [&](At at) {
            thread.at = at;
            all.push_back(next);
            next = state;
        };
        switch (thread.at) {
            case At::outside:
                if (thread.calls < most_calls) {
                    ++thread.calls;
                    if (broken_ == Broken::looks_before_counting) {
                        step(gate_is_closed(state) ? At::waiting : At::counted);
                    } else {
                        ++next.count;
                        step(At::counted);
                    }
                }
                if (state.threads[which].calls < most_calls) {
                    ++thread.calls;
                    step(At::synchronizing);
                }
                if (state.threads[which].calls < most_calls && which == 0) {  // one is enough
                    ++thread.calls;
                    ++next.others;
                    step(At::other_counted);
                }
                // It ends, by exit or by a fork that leaves it behind, from outside or waiting.
                step(At::ended);
                break;
            case At::counted:
                if (broken_ == Broken::looks_before_counting) {
                    ++next.count;
                    thread.holds_lock = true;
                    step(At::passed);
                } else if (gate_is_closed(state)) {
                    step(At::taking_back);
                } else {
                    thread.holds_lock = true;
                    step(At::passed);
                }
                break;
            case At::passed:
                ++next.work;
                step(At::submitted);
                step(At::submitted);  // an allocation: nothing is submitted
                all.back().work = state.work;
                if (state.threads[which].calls < most_calls) {
                    step(At::nested);
                }
                break;
            case At::nested:
                if (broken_ == Broken::nested_waits && gate_is_closed(state)) {
                    step(At::waiting);
                } else {
                    ++thread.calls;
                    ++next.work;
                    step(At::submitted);
                }
                break;
            case At::submitted:
                --next.count;
                thread.holds_lock = false;
                step(At::outside);
                break;
            case At::taking_back:
                --next.count;
                step(At::waiting);
                break;
            case At::waiting:
                steps_of_waiting(state, which, all);
                break;
            case At::synchronizing:
                if (state.phase == AsidePhase::draining && broken_ != Broken::answers_early) {
                    step(At::waiting_to_drain);
                } else if (state.phase >= AsidePhase::draining) {
                    next.lied = state.work != 0;
                    step(At::outside);
                } else {
                    step(At::in_driver_to_wait);
                }
                break;
            case At::waiting_to_drain:
                if (state.phase != AsidePhase::draining) {
                    step(At::synchronizing);
                } else {
                    steps_of_waiting(state, which, all);
                }
                break;
            case At::in_driver_to_wait:
                if (state.work == 0) {
                    step(At::outside);
                }
                break;
            case At::other_counted:
                thread.holds_lock = !state.shut;
                step(state.shut ? At::other_taking_back : At::in_other);
                break;
            case At::other_taking_back:
                --next.others;
                step(At::other_waiting);
                break;
            case At::other_waiting:
                if (!state.shut) {
                    ++next.others;
                    step(At::other_counted);
                } else if (!state.wanted_back) {
                    next.wanted_back = true;  // a handler has run
                    all.push_back(next);
                }
                break;
            case At::in_other:
                --next.others;
                thread.holds_lock = false;
                step(At::outside);
                break;
            case At::ended:
                break;
        }
    }

    void steps_of_waiting(const State& state, std::size_t which, std::vector<State>& all) const {
        State next = state;
        Thread& thread = next.threads[which];
        if (!gate_is_closed(state)) {
            ++next.count;
            thread.at = At::counted;
            all.push_back(next);
            return;
        }
        const bool can_be_given_up =
            state.phase == AsidePhase::closing || state.phase == AsidePhase::draining;
        if (can_be_given_up && state.late && broken_ != Broken::no_time_out &&
            broken_ != Broken::mover_alone_opens) {
            next.phase = AsidePhase::running;
            all.push_back(next);
            next = state;
        }
        if (!state.wanted_back && (state.comes_back || state.phase != AsidePhase::asleep)) {
            next.wanted_back = true;  // by itself, or a handler has run
            all.push_back(next);
        }
    }

    static void open(State& state) {
        state.phase = AsidePhase::running;
        state.mover = Moves::idle;
        state.wanted_back = state.copied = state.comes_back = state.late = false;
        state.recorded = 0;
    }

    static void sleeps(State& state) {
        state.phase = AsidePhase::asleep;
        state.mover = Moves::asleep;
    }

    /// What the driver was to take stays; the pool's part is away.
    static void stays(State& state) {
        state.shut = false;
        sleeps(state);
    }

    void steps_of_mover(const State& state, std::vector<State>& all) const {
        if (state.stuck) {
            return;
        }
        State next = state;
        const auto step = [&] {
            all.push_back(next);
            next = state;
        };
        // The time is over, it is wanted back, or something fails.
        const auto give_up = [&] {
            open(next);
            step();
        };
        const bool gives_up = (state.late && broken_ != Broken::no_time_out) || state.wanted_back;
        switch (state.mover) {
            case Moves::idle:
                if (state.orders < most_orders && state.phase == AsidePhase::running) {
                    for (const bool comes_back : {false, true}) {
                        ++next.orders;
                        next.phase = AsidePhase::closing;
                        next.mover = Moves::closing;
                        next.comes_back = comes_back;
                        step();
                    }
                }
                break;
            case Moves::closing:
                if (gives_up) {
                    give_up();
                }
                if (state.count == 0 || state.phase != AsidePhase::closing) {
                    if (state.phase != AsidePhase::closing) {
                        give_up();
                        break;
                    }
                    next.phase = AsidePhase::draining;
                    next.mover = Moves::recording;
                    step();
                }
                break;
            case Moves::recording:
                next.recorded = state.work;
                next.mover = Moves::draining;
                step();
                next.stuck = true;
                step();
                give_up();  // the driver fails
                break;
            case Moves::draining:
                if (state.recorded == 0 || broken_ == Broken::does_not_drain) {
                    next.mover = Moves::deciding;
                    step();
                }
                if (gives_up || state.phase != AsidePhase::draining) {
                    give_up();
                }
                break;
            case Moves::deciding:
                if (state.phase == AsidePhase::draining || broken_ == Broken::blind_exchange) {
                    next.phase = AsidePhase::moving_out;
                    next.mover =
                        broken_ == Broken::unmaps_first ? Moves::unmapping : Moves::copying;
                    step();
                } else {
                    give_up();
                }
                break;
            case Moves::copying:
                give_up();  // a copy fails
                next.copied = true;
                next.mover = Moves::unmapping;
                step();
                break;
            case Moves::unmapping:
                next.unmapped = true;
                next.phase = AsidePhase::asleep;
                next.mover = Moves::asleep;
                step();
                if (!state.comes_back) {  // and the rest by the driver
                    next.unmapped = true;
                    next.shut = true;
                    next.late = false;
                    next.mover = Moves::shutting;
                    step();
                }
                if (broken_ != Broken::unmaps_first) {
                    give_up();  // nothing could be unmapped
                }
                break;
            case Moves::shutting:
                if (state.others == 0 || broken_ == Broken::locks_at_once) {
                    next.mover = Moves::locking;
                    step();
                }
                if (state.late || state.wanted_back) {
                    stays(next);
                    step();
                }
                break;
            case Moves::locking:
                stays(next);  // the driver refuses
                step();
                next.process = Process::locked;
                next.mover = Moves::checkpointing;
                step();
                for (const Process process : {Process::running, Process::locked}) {
                    next.process = process;
                    next.mover = Moves::finding;
                    step();
                }
                break;
            case Moves::checkpointing:
                next.process = Process::running;  // it failed, and is unlocked
                stays(next);
                step();
                next.process = Process::checkpointed;
                sleeps(next);
                step();
                for (const Process process : {Process::locked, Process::checkpointed}) {
                    next.process = process;
                    next.mover = Moves::finding;
                    step();
                }
                break;
            case Moves::finding:
                if (state.process == Process::running || broken_ == Broken::believes_helper) {
                    stays(next);
                } else if (state.process == Process::locked) {
                    next.mover = Moves::checkpointing;
                } else {
                    sleeps(next);
                }
                step();
                break;
            case Moves::asleep:
                // Ordered, or wanted back.
                next.mover = state.process == Process::running ? Moves::getting : Moves::restoring;
                next.phase = AsidePhase::moving_in;
                step();
                break;
            case Moves::restoring:
                if (state.room && state.process == Process::checkpointed) {
                    next.process = Process::locked;  // and if that is not heard of, the state tells
                    step();
                }
                if (state.process == Process::locked) {
                    next.mover = Moves::unlocking;
                    next.shut = broken_ != Broken::unshuts_first;
                    step();
                }
                break;
            case Moves::unlocking:
                if (state.process == Process::locked) {
                    next.process = Process::running;  // heard of or not
                    step();
                } else {
                    next.shut = false;
                    next.mover = Moves::getting;
                    step();
                }
                break;
            case Moves::getting:
                if (state.room) {
                    next.mover = Moves::filling;
                    step();
                }
                break;
            case Moves::filling:
                next.mover = Moves::getting;  // a call fails: again
                step();
                next.unmapped = false;
                give_up();
                break;
        }
    }

    void steps_of_others(const State& state, std::vector<State>& all) const {
        State next = state;
        const auto step = [&] {
            all.push_back(next);
            next = state;
        };
        // The device ends its oldest work, unless that waits for a thread at the gate.
        if (state.work != 0) {
            --next.work;
            next.recorded = static_cast<std::uint8_t>(state.recorded - (state.recorded != 0));
            step();
        }
        if (!state.late &&
            (state.phase == AsidePhase::closing || state.phase == AsidePhase::draining ||
             state.mover == Moves::shutting)) {
            next.late = true;
            step();
        }
        if (state.stuck &&
            !gate_is_closed(state)) {  // the program goes on, then the driver returns
            next.stuck = false;
            step();
        }
        next.room = !state.room;
        step();
    }

    /// From each state a thread that waits gets on, and an order ends, without the help of the
    /// device's work: that may wait for this thread.
    std::string who_waits_for_ever() const {
        std::unordered_map<Key, bool> leads_on;
        std::deque<Key> open;
        for (const auto& [key, state] : seen_) {
            if (!gate_is_closed(state) && state.mover == Moves::idle) {
                leads_on[key] = true;
                open.push_back(key);
            }
        }
        while (!open.empty()) {
            const Key key = open.front();
            open.pop_front();
            const auto earlier = before_.find(key);
            if (earlier == before_.end()) {
                continue;
            }
            for (const Key& each : earlier->second) {
                if (is_by_device(seen_.at(each), seen_.at(key))) {
                    continue;
                }
                if (!leads_on[each]) {
                    leads_on[each] = true;
                    open.push_back(each);
                }
            }
        }
        for (const auto& [key, state] : seen_) {
            const bool waits = std::any_of(
                state.threads.begin(), state.threads.end(), [&state = state](const Thread& one) {
                    return one.at == At::waiting || one.at == At::waiting_to_drain ||
                           (one.at == At::other_waiting && state.shut);
                });
            const auto found = leads_on.find(key);
            if ((found == leads_on.end() || !found->second) && (waits || !state.stuck)) {
                return "from some state nothing leads back to running";
            }
        }
        return {};
    }

    static bool is_by_device(const State& from, const State& to) { return to.work < from.work; }

    const Broken broken_;
    std::unordered_map<Key, State> seen_;
    std::unordered_map<Key, std::vector<Key>> before_;
};

TEST_CASE("step aside: in every order of steps nothing is lost and nobody waits forever") {
    const Found found = Model(Broken::nothing).explore();
    std::printf("step aside: %llu states\n", static_cast<unsigned long long>(found.states));
    CHECK(found.problem == "");
    CHECK(found.states > 10'000);
}

TEST_CASE("step aside: each rule is needed") {
    for (const Broken broken :
         {Broken::looks_before_counting, Broken::does_not_drain, Broken::no_time_out,
          Broken::mover_alone_opens, Broken::blind_exchange, Broken::unmaps_first,
          Broken::nested_waits, Broken::answers_early, Broken::locks_at_once,
          Broken::believes_helper, Broken::unshuts_first}) {
        INFO(static_cast<int>(broken));
        CHECK(Model(broken).explore().problem != "");
    }
}

}  // namespace
}  // namespace memlab::model_check
