#include "interpose/moving/plan.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <optional>

#include "interpose/driver/current_context.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/moving/staying.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

constexpr std::size_t most_named = 16;
/// A thread may hold its lock for good; what is refused is refused soon.
constexpr std::uint64_t max_wait_for_recorder_ns = 50'000'000;

/// What the driver says of the whole device now.
void sample_there(Memory& memory, CUdevice device) {
    std::size_t index = 0;
    Context* const context = memory.contexts().next(device, &index);
    if (context == nullptr) {
        return;
    }
    const EndGate::Use use(context->end_gate());
    if (use.held()) {
        const CurrentContext current(context->handle());
        if (const std::optional<UsedMemory> used = used_memory(memory)) {
            record_sample(memory, device, *used);
        }
    }
}

}  // namespace

Movable movable_memory(Memory& memory, CUdevice device) {
    Movable movable;
    for (Context* const context : memory.contexts().all(device)) {
        const std::uint64_t mapped = context->backend().pages().mapped_bytes();
        movable.can_move += mapped - std::min(mapped, context->unused_bytes());
    }
    movable.can_move += program_handles().movable_bytes(device);
    const std::vector<StayingMemory> staying = staying_memory(
        memory, device, most_named, profiler::monotonic_ns() + max_wait_for_recorder_ns);
    for (const StayingMemory& each : staying) {
        movable.stays += each.bytes;
    }
    movable.staying = staying_text(staying);
    return movable;
}

bool PagesInMove::add(Context& context, std::vector<VmmPages::MovableChunk>* chunks,
                      std::uint64_t* unknown) {
    all_.reserve(all_.size() + 1);
    auto one = std::make_unique<One>(context);
    if (!one->use.held()) {
        return false;
    }
    const CurrentContext current(context.handle());  // the driver says of whose memory it tells
    *chunks = context.backend().pages().begin_move(unknown);
    all_.push_back(std::move(one));
    return true;
}

PagesInMove::~PagesInMove() {
    for (const std::unique_ptr<One>& one : all_) {
        one->context.backend().pages().end_move();
    }
}

std::vector<LeavingContext> choose_leaving(Memory& memory, CUdevice device,
                                           std::uint64_t kept_bytes, PagesInMove& moving,
                                           std::vector<std::uint64_t>* kept_of) {
    std::vector<LeavingContext> leaving;
    std::vector<std::uint64_t>& kept = *kept_of;
    for (Context* const context : memory.contexts().all(device)) {
        LeavingContext one;
        one.context = context;
        std::uint64_t unknown = 0;
        if (!moving.add(*context, &one.chunks, &unknown)) {
            continue;
        }
        const auto index = static_cast<std::size_t>(context->device());
        if (index >= kept.size()) {
            kept.resize(index + 1);
        }
        kept[index] += unknown;
        for (VmmPages::MovableChunk& chunk : one.chunks) {
            if (chunk.stays || kept[index] + chunk.bytes <= kept_bytes) {
                kept[index] += chunk.bytes;
                chunk.stays = true;
            }
        }
        std::erase_if(one.chunks, [](const auto& chunk) { return chunk.stays; });
        one.bytes =
            std::accumulate(one.chunks.begin(), one.chunks.end(), std::uint64_t{0},
                            [](std::uint64_t sum, const auto& chunk) { return sum + chunk.bytes; });
        leaving.push_back(std::move(one));
    }
    return leaving;
}

void ProgramInMove::use_contexts(Memory& memory, const std::vector<CUdevice>& devices) {
    for (const CUdevice device : devices) {
        for (Context* const context : memory.contexts().all(device)) {
            auto use = std::make_unique<EndGate::Use>(context->end_gate(), EndGate::max_wait_ns,
                                                      EndGate::Kind::lasting);
            if (use->held()) {
                uses_.push_back(std::move(use));
                contexts_.emplace(device, context->handle());
                break;
            }
        }
        CUcontext primary = nullptr;
        if (!contexts_.contains(device)) {
            retained_.reserve(retained_.size() + 1);
            if (call_real(&Driver::cuDevicePrimaryCtxRetain, &primary, device) == CUDA_SUCCESS) {
                retained_.push_back(device);
                contexts_.emplace(device, primary);
            }
        }
    }
}

ProgramInMove::~ProgramInMove() {
    for (const CUdevice device : retained_) {
        call_real(&Driver::cuDevicePrimaryCtxRelease_v2, device);
    }
    program_handles().end_move();
}

void record_moves(Memory& memory, const std::vector<CheckpointedMemory>& by_driver,
                  bool is_away_by_driver) noexcept {
    if (memory.recorder() == nullptr) {
        return;
    }
    try {
        std::vector<std::uint64_t> away(trace::DeviceInfo::max_gpus);
        std::vector<bool> has_moved(away.size());
        for (Context* const context : memory.contexts().all()) {
            const auto device = static_cast<std::size_t>(context->device());
            if (device < away.size()) {
                away[device] += context->backend().pages().away_bytes();
                has_moved[device] = has_moved[device] || context->backend().pages().was_moved();
            }
        }
        for (const CheckpointedMemory& each : by_driver) {
            if (const auto device = static_cast<std::size_t>(each.device); device < away.size()) {
                away[device] += is_away_by_driver ? each.bytes : 0;
                has_moved[device] = true;
            }
        }
        for (std::size_t device = 0; device < away.size(); ++device) {
            away[device] += program_handles().away_bytes(static_cast<CUdevice>(device));
            has_moved[device] =
                has_moved[device] || program_handles().was_moved(static_cast<CUdevice>(device));
            if (has_moved[device]) {
                memory.contexts().describe_device(static_cast<CUdevice>(device));
                trace::MemoryMoved moved;
                moved.device = static_cast<std::uint32_t>(device);
                moved.away = away[device];
                memory.recorder()->record(moved);
                if (!is_away_by_driver) {
                    sample_there(memory, static_cast<CUdevice>(device));
                }
            }
        }
        for (const CheckpointedMemory& each : by_driver) {
            if (is_away_by_driver) {  // the driver does not say
                record_sample(
                    memory, each.device,
                    {each.used_before - std::min(each.used_before, each.bytes), each.total});
            }
        }
    } catch (const std::bad_alloc&) {  // missing in the recording
    }
}

std::string seconds_text(std::uint64_t ns) {
    const std::uint64_t hundredths = ns / 10'000'000;
    std::string digits = std::to_string(hundredths % 100);
    digits.insert(0, digits.size() < 2 ? 1 : 0, '0');
    return std::to_string(hundredths / 100) + "." + digits + " s";
}

}  // namespace memlab::interpose
