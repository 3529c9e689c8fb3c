// The way out: the calls under way end, the device's work is complete, the pool's memory is copied
// and unmapped, and the driver's checkpoint takes the rest.
#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/moving/copying.hpp"
#include "interpose/moving/mover.hpp"
#include "interpose/moving/plan.hpp"
#include "interpose/moving/quiescence.hpp"
#include "model/size_text.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t poll_calls_ns = 50'000;
/// Of host memory that the driver takes for what a context has beside allocations.
constexpr std::uint64_t context_bytes = std::uint64_t{1} << 30;
constexpr const char* nothing_to_move = "nothing is left to move";

std::vector<CUdevice> devices_of(const std::vector<LeavingContext>& contexts) {
    std::vector<CUdevice> devices;
    devices.reserve(contexts.size());
    for (const LeavingContext& each : contexts) {
        devices.push_back(each.context->device());
    }
    return devices;
}

std::uint64_t with_spare(std::uint64_t bytes) {
    return bytes / 20 * 21;
}

/// Why the pool's engine alone is not enough.
std::string too_little_moves(const Movable& movable) {
    if (movable.can_move == 0) {
        return "no memory of memlab's pool is mapped, and no other can be moved" +
               (movable.staying.empty() ? "" : ": " + movable.staying);
    }
    return "only " + model::size_text(movable.can_move) + " of " +
           model::size_text(movable.can_move + movable.stays) +
           " can be moved (--engine pool moves that); this stays: " + movable.staying +
           ". Start the program with MEMLAB_BACKEND=vmm MEMLAB_IPC=off, or with "
           "memlab-run --replace, so that memlab's pool serves it";
}

}  // namespace

/// Nothing was unmapped yet.
void Mover::give_up() noexcept {
    gate.open();
    set_phase_time();
}

/// Wherever it was: what has left the GPU comes back, as after a restore.
void Mover::go_back() noexcept {
    if (state().away_bytes == 0 && !program_handles().any_absent() && !gate.is_shut()) {
        give_up();
        return;
    }
    gate.advance(Phase::moving_out, Phase::asleep);
    set_phase_time();
    gate.want_back();
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
    if (std::string problem = drain(memory_, deadline); !problem.empty()) {
        return problem;
    }
    // What was under way may have been the first call of a kind that forbids it.
    const char* const stays = gate.why_it_stays();
    return stays != nullptr ? stays : refusal_(memory_);
}

/// Empty, or why the order cannot be carried out. Where the driver's engine is used it is ready.
std::string Mover::choose(const YieldOrder& order, const Movable& movable, Engines* engines) {
    const bool enough =
        movable.can_move != 0 && (order.engine != Engine::automatic || movable.mostly_moves());
    if (order.engine == Engine::pool || (order.engine == Engine::automatic && enough)) {
        engines->pool = true;
        return enough ? std::string() : too_little_moves(movable);
    }
    const bool asked_for = order.engine != Engine::automatic;
    const bool parts = order.kept_bytes != 0 || order.device != -1;
    if (parts && !asked_for) {
        return too_little_moves(movable);
    }
    std::string problem;
    if (order.comes_back) {
        problem = "a program's own yield is the pool's engine's alone";
    } else if (parts || (order.engine == Engine::driver && !order.folder.empty())) {
        problem =
            "that takes all of the process's GPU memory to the host: "
            "--keep and --device go with the pool's engine alone, --to with the pool's part";
    } else {
        problem = DriverEngine::why_not(memory_);
    }
    if (problem.empty()) {
        problem = driver_.begin(memory_);
    }
    if (!problem.empty()) {
        return asked_for ? "it cannot step aside by the driver's checkpoint: " + problem
                         : too_little_moves(movable) +
                               ". Nor does the driver's checkpoint go: " + problem;
    }
    engines->driver = true;
    engines->pool = order.engine != Engine::driver && movable.can_move != 0;
    return {};
}

/// Empty, or that the host has too little memory for the copies.
std::string Mover::host_problem(const YieldOrder& order, const Movable& movable,
                                const Engines& engines) {
    std::uint64_t needed = 0;
    const std::uint64_t prepared = prepared_ == nullptr ? 0 : prepared_->bytes();
    if (engines.pool && order.folder.empty() && prepared < movable.can_move) {
        needed = movable.can_move;
    }
    if (engines.driver) {
        needed += movable.stays + (engines.pool ? 0 : movable.can_move) +
                  context_bytes * driver_.memory().size();
    }
    const std::uint64_t available = needed == 0 ? 0 : host_memory_available();
    return available >= with_spare(needed)
               ? std::string()
               : "the host has only " + model::size_text(available) + " of memory available for " +
                     model::size_text(needed);
}

MoveOutcome Mover::prepare(const YieldOrder& order) {
    const std::uint64_t begin = profiler::monotonic_ns();
    const std::vector<Context*> contexts = memory_.contexts().all();
    std::uint64_t bytes = 0;
    for (Context* const context : contexts) {
        bytes += context->backend().pages().mapped_bytes();
    }
    bytes += program_handles().movable_bytes(-1);
    if (gate.phase() != Phase::running || contexts.empty() ||
        (bytes == 0 && order.engine != Engine::driver && order.engine != Engine::both)) {
        return MoveOutcome::not_moved("nothing of this process is on the GPU that could be moved");
    }
    Engines engines{.pool = true};
    if (order.engine == Engine::driver || order.engine == Engine::both) {
        const Movable movable = movable_memory(memory_, order.device);
        if (std::string problem = choose(order, movable, &engines); !problem.empty()) {
            return MoveOutcome::not_moved(std::move(problem));
        }
    }
    MoveOutcome outcome;
    if (engines.pool) {
        prepared_.reset();
        if (host_memory_available() < with_spare(bytes)) {
            return MoveOutcome::not_moved("the host has not enough memory available for " +
                                          model::size_text(bytes));
        }
        const EndGate::Use use(contexts.front()->end_gate(), EndGate::max_wait_ns,
                               EndGate::Kind::lasting);
        const RelaxedCapture relaxed(true);
        const CurrentContext current(contexts.front()->handle());
        auto memory = std::make_shared<PreparedMemory>(bytes, &outcome.problem);
        if (!outcome.problem.empty()) {
            return outcome;
        }
        prepared_ = std::move(memory);
        outcome.bytes = bytes;
        outcome.text = model::size_text(bytes) + " of host memory";
    }
    if (engines.driver) {
        outcome.text += std::string(outcome.text.empty() ? "" : " and ") + "the driver's helper";
    }
    outcome.text =
        "prepared " + outcome.text + " in " + seconds_text(profiler::monotonic_ns() - begin);
    return outcome;
}

/// Behind draining. With a problem nothing was unmapped, and the phase is draining or moving out.
MoveOutcome Mover::move_pool_out(const YieldOrder& order) {
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
    const std::uint64_t prepared = prepared_ == nullptr ? 0 : prepared_->bytes();
    std::string problem;
    if (bytes == 0) {
        problem = order.kept_bytes != 0 ? "no more is there than is to stay" : nothing_to_move;
    } else if (order.folder.empty() && prepared < bytes &&
               host_memory_available() < with_spare(bytes)) {
        problem = "the host has not enough memory available";
    }
    std::optional<KeptRoom> room;
    if (order.folder.empty() && prepared >= bytes && prepared != 0) {
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
        return MoveOutcome::not_moved(std::move(problem));
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
        outcome.problem = "the driver unmapped nothing";
        return outcome;
    }
    if (outcome.bytes < bytes) {
        outcome.text = model::size_text(bytes - outcome.bytes) + " could not be unmapped";
    }
    if (const std::uint64_t managed =
            managed_.send_to_host(memory_, order.device, host_memory_available() / 21 * 20);
        managed != 0) {
        outcome.text += (outcome.text.empty() ? "sent " : "; sent ") + model::size_text(managed) +
                        " of managed memory after it";
    }
    return outcome;
}

MoveOutcome Mover::move_out(const YieldOrder& order) {
    const std::uint64_t begin = profiler::monotonic_ns();
    if (gate.phase() != Phase::running) {
        return MoveOutcome::not_moved("this process is away already");
    }
    if (std::string problem = why_not_to_move(memory_); !problem.empty()) {
        return MoveOutcome::not_moved(std::move(problem));
    }
    if (std::string problem = refusal_(memory_); !problem.empty()) {
        return MoveOutcome::not_moved(std::move(problem));
    }
    const Movable movable = movable_memory(memory_, order.device);
    Engines engines;
    if (std::string problem = choose(order, movable, &engines); !problem.empty()) {
        return MoveOutcome::not_moved(std::move(problem));
    }
    if (std::string problem = host_problem(order, movable, engines); !problem.empty()) {
        return MoveOutcome::not_moved(std::move(problem));
    }
    if (std::string problem = quiesce(order); !problem.empty()) {
        give_up();
        return MoveOutcome::not_moved(std::move(problem));
    }
    for (Context* const context : memory_.contexts().all(order.device)) {
        const EndGate::Use use(context->end_gate(), EndGate::max_wait_ns, EndGate::Kind::lasting);
        if (use.held()) {
            context->pool().release_cached(true);
        }
    }
    MoveOutcome outcome;
    if (engines.pool) {
        outcome = move_pool_out(order);
        if (engines.driver && outcome.problem == nothing_to_move) {
            outcome.problem.clear();
        }
    }
    if (outcome.problem.empty() && outcome.bytes == 0 &&
        !gate.advance(Phase::draining, Phase::moving_out)) {
        outcome.problem = "the time was over";
    }
    if (!outcome.problem.empty()) {
        give_up();
        return outcome;
    }
    std::string staying = engines.driver ? std::string() : movable.staying;
    if (engines.driver) {
        driver_.count_known(memory_);
        std::string problem;
        const DriverEngine::Left left = driver_.leave(memory_, order.timeout_ns, &problem);
        if (left == DriverEngine::Left::stayed) {
            free_what_was_deferred();
        }
        if (left == DriverEngine::Left::stayed && outcome.bytes == 0) {
            give_up();
            return MoveOutcome::not_moved(std::move(problem));
        }
        if (left == DriverEngine::Left::stayed) {
            staying = "all else, since " + problem;
        }
        outcome.problem = left == DriverEngine::Left::lost ? problem : std::string();
    }
    record_moves(memory_, driver_.memory(), driver_.away());
    gate.advance(Phase::moving_out, Phase::asleep);
    set_phase_time();
    try {
        std::string text = "moved " + model::size_text(outcome.bytes + driver_.away_bytes()) +
                           " of GPU memory " +
                           (order.folder.empty() ? "to the host" : "to " + order.folder) + " in " +
                           seconds_text(profiler::monotonic_ns() - begin);
        if (driver_.away()) {
            text += ", " + model::size_text(driver_.away_bytes()) +
                    " of it, with the context, by the driver's checkpoint";
        }
        if (!outcome.text.empty()) {
            text += "; " + outcome.text;
        }
        if (!staying.empty()) {
            text += "; this stays: " + staying;
        }
        outcome.text = std::move(text);
    } catch (const std::bad_alloc&) {  // it is away without a word
        outcome.text.clear();
    }
    outcome.bytes += driver_.away_bytes();
    return outcome;
}

}  // namespace memlab::interpose
