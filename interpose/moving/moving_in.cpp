// The way back: everything of all GPUs, or nothing yet.
#include <new>
#include <string>
#include <vector>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/diagnostics.hpp"
#include "interpose/driver/sticky_errors.hpp"
#include "interpose/moving/copying.hpp"
#include "interpose/moving/mover.hpp"
#include "interpose/moving/plan.hpp"
#include "model/size_text.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t retry_memory_ns = 50'000'000;
constexpr std::uint64_t tell_after_ns = 5'000'000'000;

/// Whether the context's own state refuses all work: what it held cannot matter any more.
bool is_broken(CUcontext context) {
    const CurrentContext current(context);
    return is_sticky(call_real(&Driver::cuStreamQuery, CUstream{nullptr}));
}

}  // namespace

/// What was freed meanwhile need not come back.
void Mover::drop_what_is_free() noexcept {
    std::size_t index = 0;
    while (Context* const context = memory_.contexts().next(-1, &index)) {
        const EndGate::Use use(context->end_gate(), EndGate::max_wait_ns);
        if (use.held() && context->backend().pages().away_bytes() != 0) {
            context->pool().release_cached(false);
        }
    }
}

bool Mover::try_to_move_in(Lack* lack, Returned* back) {
    PagesInMove moving;
    std::vector<Context*> returning;
    for (Context* const context : memory_.contexts().all()) {
        if (context->backend().pages().away_bytes() == 0) {
            continue;
        }
        std::vector<VmmPages::MovableChunk> present;
        std::uint64_t unknown = 0;
        if (!moving.add(*context, &present, &unknown)) {
            return false;  // it may be ending; then nothing of it is away the next time
        }
        returning.push_back(context);
    }
    ProgramInMove program;
    const std::vector<CUdevice> devices = program_handles().devices_away();
    program.use_contexts(memory_, devices);
    for (const CUdevice device : devices) {
        if (!program.contexts().contains(device)) {
            *lack = {device, program_handles().away_bytes(device), "the driver makes no context"};
            return false;
        }
    }
    back->chunks.reserve(returning.size());
    std::vector<std::vector<CopyTask>> pieces(returning.size());
    for (std::size_t i = 0; i < returning.size(); ++i) {
        returning[i]->backend().pages().for_each_away(
            [&](std::uint64_t address, std::uint64_t bytes, KeptContents& contents) {
                add_pieces(address, bytes, static_cast<HeldContents&>(contents), pieces[i]);
            });
    }
    // All of the memory before any is mapped: who has a part of it and waits for the rest could
    // wait for a process that does the same.
    std::size_t got = 0;
    std::size_t mapped = 0;
    bool all = true;
    for (; got < returning.size(); ++got) {
        VmmPages& pages = returning[got]->backend().pages();
        const CurrentContext current(returning[got]->handle());
        if (pages.get_memory() != CUDA_SUCCESS) {
            *lack = {returning[got]->device(), pages.away_bytes()};
            all = false;
            break;
        }
    }
    CUdevice lacking = -1;
    const bool program_got = all && program_handles().get_memory(&lacking) == CUDA_SUCCESS;
    if (lacking >= 0) {
        *lack = {lacking, program_handles().away_bytes(lacking)};
    }
    all = all && program_got;
    for (; all && mapped < returning.size(); ++mapped) {
        const CurrentContext current(returning[mapped]->handle());
        all = returning[mapped]->backend().pages().map_memory() == CUDA_SUCCESS;
        if (!all) {
            break;
        }
    }
    if (!all && lack->bytes == 0) {
        lack->other = "the driver does not map its memory";
    }
    for (std::size_t i = 0; all && i < returning.size(); ++i) {
        lack->problem = copy_contents(returning[i]->handle(), pieces[i], Direction::in, stopping_);
        lack->other = "its contents could not be copied";
        all = lack->problem.empty() || is_broken(returning[i]->handle());
    }
    if (all && !program_handles().fill(program.contexts(), stopping_,
                                       [](CUcontext context) { return is_broken(context); })) {
        lack->other = "what it has mapped itself could not be filled";
        all = false;
    }
    if (all) {
        back->of_program = program_handles().came_back(&back->bytes);
    } else if (program_got) {
        program_handles().return_memory();
    }
    for (std::size_t i = 0; i < got; ++i) {
        VmmPages& pages = returning[i]->backend().pages();
        const CurrentContext current(returning[i]->handle());
        if (all) {
            back->chunks.push_back(pages.came_back());
            continue;
        }
        if (i < mapped) {
            pages.unmap_memory();
        }
        pages.return_memory();
    }
    return all;
}

void Mover::wait_to_try_again(const Lack& lack, std::uint64_t since_ns, bool* told) noexcept {
    const std::uint64_t now = profiler::monotonic_ns();
    short_of_memory_.store(lack.bytes != 0);
    if (!*told && now - since_ns > tell_after_ns && (lack.bytes != 0 || lack.other != nullptr)) {
        *told = true;
        try {
            warn("this process waits to come back: " +
                 (lack.bytes != 0 ? "GPU " + std::to_string(lack.device) + " has no room for its " +
                                        model::size_text(lack.bytes)
                                  : std::string(lack.other) +
                                        (lack.problem.empty() ? "" : " (" + lack.problem + ")") +
                                        "; it tries again"));
        } catch (const std::bad_alloc&) {  // it waits anyway
        }
    }
    if (lack.bytes == 0 || driver_.away() || !memory_.others_gave_back(lack.device, lack.bytes)) {
        profiler::sleep_ns(retry_memory_ns);
    }
}

/// What the driver has taken comes back first; the pool's part needs the driver. False: it does
/// not, since the process ends or is lost.
bool Mover::come_back_by_driver(std::uint64_t begin_ns, std::string* problem) {
    bool told = false;
    while (!stopping_.load()) {
        std::vector<std::uint64_t> others;
        for (const CheckpointedMemory& each : driver_.memory()) {
            std::uint64_t bytes = program_handles().away_bytes(each.device);
            std::size_t index = 0;
            while (Context* const context = memory_.contexts().next(each.device, &index)) {
                bytes += context->backend().pages().away_bytes();
            }
            others.push_back(bytes);
        }
        std::size_t lacking = 0;
        Lack lack;
        switch (driver_.come_back(others, &lacking, problem)) {
            case DriverEngine::Returned::back:
                short_of_memory_.store(false);
                return true;
            case DriverEngine::Returned::lost:
                short_of_memory_.store(false);
                warn(*problem);
                return false;
            case DriverEngine::Returned::no_room:
                lack = {driver_.memory()[lacking].device,
                        driver_.memory()[lacking].bytes + others[lacking]};
                break;
            case DriverEngine::Returned::not_yet:
                lack.other = "the driver's helper does not answer";
                break;
        }
        wait_to_try_again(lack, begin_ns, &told);
    }
    *problem = "the process ends";
    return false;
}

MoveOutcome Mover::move_in() noexcept {
    MoveOutcome outcome;
    gate.advance(Phase::asleep, Phase::moving_in);
    set_phase_time();
    const std::uint64_t begin = profiler::monotonic_ns();
    Returned back;
    bool told = false;
    if (gate.is_shut()) {
        const std::uint64_t bytes = driver_.away_bytes();
        try {
            if (!come_back_by_driver(begin, &outcome.problem)) {
                gate.advance(Phase::moving_in, Phase::asleep);
                set_phase_time();
                return outcome;
            }
        } catch (const std::bad_alloc&) {  // it stays away, until the next order
            gate.advance(Phase::moving_in, Phase::asleep);
            outcome.problem = "the host is out of memory";
            return outcome;
        }
        outcome.bytes = bytes;
        free_what_was_deferred();
    }
    drop_what_is_free();
    while (!stopping_.load()) {
        Lack lack;
        try {
            back = {};
            if (try_to_move_in(&lack, &back)) {
                break;
            }
        } catch (const std::bad_alloc&) {
            lack.other = "the host is out of memory";
        }
        wait_to_try_again(lack, begin, &told);
    }
    if (stopping_.load()) {
        outcome.problem = "the process ends";
        return outcome;
    }
    outcome.bytes += back.bytes;
    for (const VmmPages::AwayChunks& chunks : back.chunks) {
        for (const auto& [address, away] : chunks) {
            outcome.bytes += away.bytes;
        }
    }
    short_of_memory_.store(false);
    const std::uint64_t managed = managed_.bring_back(memory_);
    record_moves(memory_, driver_.memory(), false);
    toggle_.store(false);  // a signal while it waited for memory asked for this
    gate.open();
    set_phase_time();
    try {
        outcome.text = "moved " + model::size_text(outcome.bytes) + " back to the GPU in " +
                       seconds_text(profiler::monotonic_ns() - begin);
        if (managed != 0) {
            outcome.text += ", and " + model::size_text(managed) + " of managed memory";
        }
    } catch (const std::bad_alloc&) {  // it is back without a word
    }
    return outcome;
}

}  // namespace memlab::interpose
