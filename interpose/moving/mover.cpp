#include "interpose/moving/mover.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/diagnostics.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/moving/copying.hpp"
#include "interpose/moving/plan.hpp"
#include "interpose/moving/quiescence.hpp"
#include "model/size_text.hpp"
#include "profiler/clock.hpp"
#include "threads/own_thread.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t move_second_ns = 1'000'000'000;
constexpr std::uint64_t poll_calls_ns = 50'000;
constexpr std::uint64_t poll_outcome_ns = 300'000;

constexpr const char* no_host_memory = "the host is out of memory";

std::vector<CUdevice> devices_of(const std::vector<LeavingContext>& contexts) {
    std::vector<CUdevice> devices;
    for (const LeavingContext& each : contexts) {
        devices.push_back(each.context->device());
    }
    return devices;
}

MoveOutcome not_moved(std::string problem) {
    MoveOutcome outcome;
    outcome.problem = std::move(problem);
    return outcome;
}

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
    const InsideMemlab inside;
    static_cast<Mover*>(self)->loop();
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
            outcome = order.only_prepare ? prepare() : move_out(order);
        } catch (const std::bad_alloc&) {
            if (!order.only_prepare) {
                give_up();
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
        finish(not_moved("nothing of this process is away"));
    }
}

void Mover::finish(MoveOutcome outcome) noexcept {
    {
        const threads::LockGuard lock(mutex_);
        outcome_ = std::move(outcome);
    }
    tickets_done_.fetch_add(1);
}

void Mover::set_phase_time() noexcept {
    phase_since_ns_.store(profiler::monotonic_ns());
}

// ---- out

/// Nothing was unmapped yet.
void Mover::give_up() noexcept {
    gate.open();
    set_phase_time();
}

/// Closes the gate and waits until nothing is under way. Empty, or why it is open again.
std::string Mover::quiesce(const YieldOrder& order) {
    const std::uint64_t deadline = profiler::monotonic_ns() + order.timeout_ns;
    if (!gate.close(deadline, order.comes_back)) {
        return "it is stepping aside or away already";
    }
    set_phase_time();
    while (gate.under_way() != 0) {
        if (gate.wanted_back()) {
            return "it was called back";
        }
        if (stopping_.load() || profiler::monotonic_ns() >= deadline) {
            return "a call that submits work did not return in time: a full queue, a copy that "
                   "waits for a kernel, or a call that a signal handler left";
        }
        profiler::sleep_ns(poll_calls_ns);
    }
    if (!gate.advance(Phase::closing, Phase::draining)) {
        return "the time was over";
    }
    if (memory_.captures().capturing()) {
        return "a stream is being captured";
    }
    return drain(memory_, deadline);
}

MoveOutcome Mover::prepare() {
    const std::uint64_t begin = profiler::monotonic_ns();
    const std::vector<Context*> contexts = memory_.contexts().all();
    std::uint64_t bytes = 0;
    for (Context* const context : contexts) {
        bytes += context->backend().pages().mapped_bytes();
    }
    bytes += program_handles().movable_bytes(-1);
    if (gate.phase() != Phase::running || bytes == 0) {
        return not_moved("nothing of this process is on the GPU that could be moved");
    }
    prepared_.reset();
    if (host_memory_available() < bytes / 20 * 21) {
        return not_moved("the host has not enough memory available for " + model::size_text(bytes));
    }
    const EndGate::Use use(contexts.front()->end_gate(), EndGate::max_wait_ns);
    const RelaxedCapture relaxed(true);
    const CurrentContext current(contexts.front()->handle());
    MoveOutcome outcome;
    auto memory = std::make_shared<PreparedMemory>(bytes, &outcome.problem);
    if (outcome.problem.empty()) {
        prepared_ = std::move(memory);
        outcome.bytes = bytes;
        outcome.text = "prepared " + model::size_text(bytes) + " of host memory in " +
                       seconds_text(profiler::monotonic_ns() - begin);
    }
    return outcome;
}

MoveOutcome Mover::move_out(const YieldOrder& order) {
    const std::uint64_t begin = profiler::monotonic_ns();
    if (gate.phase() != Phase::running) {
        return not_moved("this process is away already");
    }
    if (std::string problem = why_not_to_move(memory_); !problem.empty()) {
        return not_moved(std::move(problem));
    }
    if (std::string problem = refusal_(memory_); !problem.empty()) {
        return not_moved(std::move(problem));
    }
    const Movable movable = movable_memory(memory_, order.device);
    if (movable.can_move == 0) {
        return not_moved("no memory of memlab's pool is mapped, and no other can be moved" +
                         (movable.staying.empty() ? "" : ": " + movable.staying));
    }
    if (order.engine == Engine::automatic && !movable.mostly_moves()) {
        return not_moved(
            "only " + model::size_text(movable.can_move) + " of " +
            model::size_text(movable.can_move + movable.stays) +
            " can be moved (--engine pool moves that); this stays: " + movable.staying +
            ". Start the program with MEMLAB_BACKEND=vmm MEMLAB_IPC=off, or with "
            "memlab-run --replace, so that memlab's pool serves it");
    }
    const std::uint64_t prepared = prepared_ == nullptr ? 0 : prepared_->bytes();
    if (order.folder.empty() && prepared < movable.can_move &&
        host_memory_available() < movable.can_move / 20 * 21) {
        return not_moved("the host has only " + model::size_text(host_memory_available()) +
                         " of memory available for " + model::size_text(movable.can_move));
    }
    if (std::string problem = quiesce(order); !problem.empty()) {
        give_up();
        return not_moved(std::move(problem));
    }
    for (Context* const context : memory_.contexts().all(order.device)) {
        const EndGate::Use use(context->end_gate(), EndGate::max_wait_ns);
        if (use.held()) {
            context->pool().release_cached(true);
        }
    }
    PagesInMove moving;
    std::vector<std::uint64_t> kept;  // by device
    std::vector<LeavingContext> leaving =
        choose_leaving(memory_, order.device, order.kept_bytes, moving, &kept);
    ProgramInMove program;
    program.use_contexts(memory_, devices_of(leaving));
    std::uint64_t bytes =
        program_handles().choose(program.contexts(), std::move(kept), order.kept_bytes);
    for (const LeavingContext& one : leaving) {
        bytes += one.bytes;
    }
    std::string problem;
    if (bytes == 0) {
        problem = "nothing is left to move";
    } else if (order.folder.empty() && prepared < bytes &&
               host_memory_available() < bytes / 20 * 21) {
        problem = "the host has not enough memory available";
    }
    const bool is_prepared =
        order.folder.empty() && prepared_ != nullptr && prepared_->bytes() >= bytes;
    std::optional<KeptRoom> room;
    if (is_prepared) {
        room.emplace(prepared_);
    } else if (problem.empty()) {
        room.emplace(bytes, order.folder, &problem);
    }
    std::vector<std::vector<std::unique_ptr<KeptContents>>> contents(leaving.size());
    if (problem.empty() && !gate.advance(Phase::draining, Phase::moving_out)) {
        problem = "the time was over";
    }
    for (std::size_t i = 0; i < leaving.size() && problem.empty(); ++i) {
        std::vector<CopyTask> pieces;
        for (const VmmPages::MovableChunk& chunk : leaving[i].chunks) {
            std::unique_ptr<HeldContents> held = room->take(chunk.bytes);
            add_pieces(chunk.address, chunk.bytes, *held, pieces);
            contents[i].push_back(std::move(held));
        }
        problem = copy_contents(leaving[i].context->handle(), pieces, Direction::out, stopping_);
    }
    if (problem.empty()) {
        problem = program_handles().copy_out(program.contexts(), *room, stopping_);
    }
    if (!problem.empty()) {
        give_up();
        return not_moved(std::move(problem));
    }
    MoveOutcome outcome;
    outcome.bytes = program_handles().take_out(stopping_);
    for (std::size_t i = 0; i < leaving.size(); ++i) {
        const RelaxedCapture relaxed(true);
        const CurrentContext current(leaving[i].context->handle());
        VmmPages& pages = leaving[i].context->backend().pages();
        for (std::size_t chunk = 0; chunk < contents[i].size() && !stopping_.load(); ++chunk) {
            const VmmPages::MovableChunk& each = leaving[i].chunks[chunk];
            try {
                if (pages.take_out(each, std::move(contents[i][chunk])) == CUDA_SUCCESS) {
                    outcome.bytes += each.bytes;
                }
            } catch (const std::bad_alloc&) {  // it stays, as it was
            }
        }
    }
    if (outcome.bytes == 0) {
        give_up();
        return not_moved("the driver unmapped nothing");
    }
    const std::uint64_t managed =
        managed_.send_to_host(memory_, order.device, host_memory_available() / 21 * 20);
    record_moves(memory_);
    gate.advance(Phase::moving_out, Phase::asleep);
    set_phase_time();
    try {
        outcome.text = "moved " + model::size_text(outcome.bytes) + " of GPU memory " +
                       (order.folder.empty() ? "to the host" : "to " + order.folder) + " in " +
                       seconds_text(profiler::monotonic_ns() - begin);
        if (outcome.bytes < bytes) {
            outcome.text +=
                "; " + model::size_text(bytes - outcome.bytes) + " could not be unmapped";
        }
        if (managed != 0) {
            outcome.text += "; sent " + model::size_text(managed) + " of managed memory after it";
        }
        if (!movable.staying.empty()) {
            outcome.text += "; this stays: " + movable.staying;
        }
    } catch (const std::bad_alloc&) {  // it is away without a word
    }
    return outcome;
}

// ---- orders

void Mover::wait_for(std::uint64_t ticket, std::uint64_t max_wait_ns, MoveOutcome* outcome) {
    gate.ring();
    const std::uint64_t begin = profiler::monotonic_ns();
    while (tickets_done_.load() < ticket) {
        const std::uint64_t waited = profiler::monotonic_ns() - begin;
        if (stopping_.load() || waited >= max_wait_ns ||
            (max_wait_ns != forever && short_of_memory_.load() && waited >= move_second_ns)) {
            outcome->text = short_of_memory_.load()
                                ? "it waits for GPU memory, and comes back when there is enough"
                                : "it goes on; status says how far it is";
            return;
        }
        profiler::sleep_ns(poll_outcome_ns);
    }
    const threads::LockGuard lock(mutex_);
    *outcome = outcome_;
}

/// Its number; 0: it cannot be given, and *outcome says why.
std::uint64_t Mover::place(Wanted wanted, const YieldOrder& order, MoveOutcome* outcome) {
    const threads::LockGuard lock(mutex_);
    if (!started_.load() || stopping_.load()) {
        outcome->problem = "there is no thread for it";
    } else if (wanted_ != Wanted::nothing || tickets_ != tickets_done_.load()) {
        outcome->problem = "another order is under way";
    } else if (wanted == Wanted::in && gate.phase() == Phase::moving_in) {
        outcome->text = "it is coming back already";
    } else {
        order_ = order;
        wanted_ = wanted;
        return ++tickets_;
    }
    return 0;
}

void Mover::yield(const YieldOrder& order, std::uint64_t max_wait_ns, MoveOutcome* outcome) {
    if (const std::uint64_t ticket = place(Wanted::out, order, outcome); ticket != 0) {
        wait_for(ticket, max_wait_ns, outcome);
    }
}

void Mover::restore(std::uint64_t max_wait_ns, MoveOutcome* outcome) {
    if (const std::uint64_t ticket = place(Wanted::in, {}, outcome); ticket != 0) {
        wait_for(ticket, max_wait_ns, outcome);
    }
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
    return state;
}

}  // namespace memlab::interpose
