#include "interpose/moving/mover.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/diagnostics.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/pool_recorder.hpp"
#include "interpose/moving/plan.hpp"
#include "interpose/options/small_file.hpp"
#include "profiler/clock.hpp"
#include "threads/own_thread.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t move_second_ns = 1'000'000'000;
constexpr std::uint64_t poll_outcome_ns = 300'000;

constexpr const char* no_host_memory = "the host is out of memory";

}  // namespace

bool Mover::start() noexcept {
    if (started_.exchange(true)) {
        return true;
    }
    gate.turn_on();
    if (!threads::start_own_thread(&Mover::run, this)) {
        started_.store(false);
        return false;
    }
    return true;
}

void* Mover::run(void* self) {
    {
        const InsideMemlab inside;
        static_cast<Mover*>(self)->loop();
    }
    static_cast<Mover*>(self)->end_if_caught();  // as the program's own exit
    return nullptr;
}

void Mover::loop() {
    while (!stopping_.load()) {
        const std::uint32_t bells = gate.bells();
        idle_.store(false);
        if (!stopping_.load()) {
            take_orders();
        }
        idle_.store(true);
        if (bells == gate.bells()) {
            gate.sleep(bells, 3600 * move_second_ns);
        }
    }
}

/// While exit() is under way: looks whether the thread that made that call waits in one place,
/// since it may be the locked driver that it waits for, or a thread at the gate. Then the one ends
/// the process, the other waits no longer.
void Mover::end_if_caught() noexcept {
    constexpr std::uint64_t look_ns = move_second_ns / 20;
    constexpr unsigned looks_for_driver = 20;
    constexpr unsigned looks_for_gate = 100;
    const bool by_driver = gate.is_shut() && driver_.away();
    if ((!by_driver && gate.phase() == Phase::running) || end_process_.load() == nullptr) {
        return;
    }
    try {
        const std::string path = "/proc/self/task/" + std::to_string(gate.exiting_thread()) +
                                 "/syscall";  // its number, arguments and stack; or "running"
        std::string before;
        for (unsigned same = 0; same < (by_driver ? looks_for_driver : looks_for_gate);) {
            profiler::sleep_ns(look_ns);
            const std::string now = read_small_file(path, 256);
            same = now == before && !now.starts_with("running") ? same + 1 : 0;
            before = now;
        }
        if (by_driver) {
            end_process_.load()();
        } else {
            gate.let_nobody_wait();
        }
    } catch (const std::bad_alloc&) {  // the process is left to itself
    }
}

void Mover::take_orders() {
    Wanted wanted = Wanted::nothing;
    YieldOrder order;
    {
        const threads::LockGuard lock(mutex_);
        wanted = std::exchange(wanted_, Wanted::nothing);
        order = std::move(order_);
        order_ = {};
    }
    const bool ordered = wanted != Wanted::nothing;
    const bool asleep = gate.phase() == Phase::asleep;
    if (!ordered && toggle_.exchange(false)) {
        wanted = asleep ? Wanted::in : Wanted::out;
        order.timeout_ns = memory_.settings().yield_timeout_ns;
    }
    if (asleep && (wanted == Wanted::in || gate.wanted_back())) {
        MoveOutcome outcome = move_in();
        if (wanted == Wanted::in) {
            if (ordered) {
                finish(std::move(outcome));
            }
            return;
        }
    }
    if (wanted == Wanted::out) {
        MoveOutcome outcome;
        try {
            outcome = order.only_prepare ? prepare(order) : move_out(order);
        } catch (const std::bad_alloc&) {
            if (!order.only_prepare) {
                go_back();
            }
            outcome.problem = no_host_memory;
        }
        if (!ordered && !outcome.problem.empty()) {
            warn("this process did not step aside: " + outcome.problem);
        }
        if (ordered) {
            finish(std::move(outcome));
        }
    } else if (wanted == Wanted::in) {
        finish(MoveOutcome::not_moved("nothing of this process is away"));
    }
}

void Mover::finish(MoveOutcome outcome) noexcept {
    const threads::LockGuard lock(mutex_);
    outcomes_[(tickets_done_.load() + 1) % outcomes_.size()] = std::move(outcome);
    tickets_done_.fetch_add(1);
}

void Mover::set_phase_time() noexcept {
    phase_since_ns_.store(profiler::monotonic_ns());
}

// ---- orders

Mover::Ticket Mover::order(Wanted wanted, const YieldOrder& order, std::uint64_t max_wait_ns,
                           MoveOutcome* outcome) {
    Ticket ticket;
    const threads::LockGuard lock(mutex_);
    const bool busy = wanted_ != Wanted::nothing || tickets_ != tickets_done_.load();
    const Phase phase = gate.phase();
    if (!started_.load() || stopping_.load()) {
        outcome->problem = "there is no thread for it";
    } else if (wanted == Wanted::in && (phase == Phase::closing || phase == Phase::draining)) {
        gate.want_back();
        outcome->text = "called it back before anything was moved";
    } else if (busy) {
        outcome->problem = "another order is under way";
    } else if (wanted == Wanted::in && phase == Phase::moving_in) {
        outcome->text = "it is coming back already";
    } else {
        order_ = order;
        wanted_ = wanted;
        ticket = {++tickets_, profiler::monotonic_ns(), max_wait_ns};
        gate.ring();
    }
    return ticket;
}

bool Mover::is_over(const Ticket& ticket, MoveOutcome* outcome) {
    if (tickets_done_.load() >= ticket.number) {
        const threads::LockGuard lock(mutex_);
        if (tickets_done_.load() - ticket.number < outcomes_.size()) {
            *outcome = std::move(outcomes_[ticket.number % outcomes_.size()]);
        }
        return true;
    }
    const std::uint64_t waited = profiler::monotonic_ns() - ticket.since_ns;
    if (stopping_.load() || waited >= ticket.max_wait_ns ||
        (ticket.max_wait_ns != forever && short_of_memory_.load() && waited >= move_second_ns)) {
        outcome->text = short_of_memory_.load()
                            ? "it waits for GPU memory, and comes back when there is enough"
                            : "it goes on; status says how far it is";
        return true;
    }
    return false;
}

void Mover::wait_for(const Ticket& ticket, MoveOutcome* outcome) {
    while (ticket.number != 0 && !is_over(ticket, outcome)) {
        profiler::sleep_ns(poll_outcome_ns);
    }
}

void Mover::yield(const YieldOrder& given, MoveOutcome* outcome) {
    wait_for(order(Wanted::out, given, forever, outcome), outcome);
}

void Mover::restore(MoveOutcome* outcome) {
    wait_for(order(Wanted::in, {}, forever, outcome), outcome);
}

void Mover::toggle() noexcept {
    toggle_.store(true);
    gate.ring();
}

void Mover::stop() noexcept {
    stopping_.store(true);
    gate.ring();
    const std::uint64_t until = profiler::monotonic_ns() + move_second_ns;
    while (!idle_.load() && profiler::monotonic_ns() < until) {
        profiler::sleep_ns(poll_outcome_ns);
    }
}

void Mover::stop_at_exit(void (*end)()) noexcept {
    end_process_.store(end);
    gate.exiting();
    stop();
}

bool Mover::free_later(CUdeviceptr address) {
    const std::optional<PooledBlock> pooled = find_pooled(memory_, address);
    if (!pooled || !pooled->block || pooled->block->address != address) {
        return false;
    }
    const threads::LockGuard lock(deferred_mutex_);
    const std::pair one(pooled->context->handle(), address);
    if (!gate.is_shut() || std::find(deferred_.begin(), deferred_.end(), one) != deferred_.end()) {
        return false;
    }
    deferred_.push_back(one);
    return true;
}

Mover::Deferred Mover::take_deferred() noexcept {
    const threads::LockGuard lock(deferred_mutex_);
    return std::exchange(deferred_, {});
}

void Mover::free_what_was_deferred() noexcept {
    for (const auto& [context, address] : take_deferred()) {
        const CurrentContext current(context);
        free_device(memory_, Api::cuMemFree_v2, address,
                    [address = address] { return call_real(&Driver::cuMemFree_v2, address); });
    }
}

// Without the driver, which may be locked.
void Mover::record_deferred_frees() noexcept {
    try {
        for (const auto& [context, address] : take_deferred()) {
            if (Context* const owner = memory_.segments().find(address)) {
                owner->pool().free(address, make_tag(memory_.api_id(Api::cuMemFree_v2), 0),
                                   allocator::FenceTiming::deferred);
            }
        }
    } catch (const std::bad_alloc&) {  // missing in the recording
    }
}

void Mover::forget_after_fork() noexcept {
    driver_.helper().close_after_fork();
    let_calls_through();
}

Mover::State Mover::state() const {
    State state;
    state.phase = gate.phase();
    state.since_ns = phase_since_ns_.load();
    state.waiting = gate.waiting();
    state.short_of_memory = short_of_memory_.load();
    std::size_t index = 0;
    while (Context* const context = memory_.contexts().next(-1, &index)) {
        state.away_bytes += context->backend().pages().away_bytes();
    }
    state.away_bytes += program_handles().away_bytes(-1);
    state.away_bytes += driver_.away_bytes();
    state.by_driver = driver_.away();
    state.lost = driver_.lost();
    return state;
}

}  // namespace memlab::interpose
