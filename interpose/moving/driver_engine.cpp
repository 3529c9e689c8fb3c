#include "interpose/moving/driver_engine.hpp"

#include <algorithm>
#include <new>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/memory/memory_limit.hpp"
#include "interpose/moving/gate.hpp"
#include "interpose/moving/program_handles.hpp"
#include "model/size_text.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t one_second_ns = 1'000'000'000;
constexpr std::uint64_t longest_answer_ns = 5 * one_second_ns;  // of what does not wait
constexpr std::uint64_t longest_search_ns = 30 * one_second_ns;
constexpr std::uint64_t pause_between_helpers_ns = 100'000'000;
constexpr std::uint64_t poll_others_ns = 50'000;
constexpr int most_failures = 3;

int number(ProcessState state) {
    return static_cast<int>(state);
}

std::string with_error(const char* what, int error) {
    return std::string(what) + " (error " + std::to_string(error) + ")";
}

/// What an error says of a process that nothing has happened to yet.
std::string refusal(const char* what, int error) {
    if (error == CUDA_ERROR_NOT_READY) {
        return "a call of the driver did not end in time, so that it could not be locked";
    }
    if (error == CUDA_ERROR_NOT_SUPPORTED || error == CUDA_ERROR_NOT_FOUND ||
        error == helper_has_no_function) {
        return "this driver does not checkpoint this process; it takes 570 (CUDA 12.8) or later";
    }
    std::string text = with_error(what, error);
    if (const std::string right = missing_right(); !right.empty()) {
        text += ": " + right;
    }
    return text;
}

/// A tenth to spare, unless not even the GPU without this process had so much.
std::uint64_t room_for(const CheckpointedMemory& memory, std::uint64_t others) {
    return std::min(memory.bytes / 10 * 11 + others,
                    std::max(memory.free_after, memory.bytes + others));
}

}  // namespace

std::string DriverEngine::why_not(Memory& memory) {
    if (libcuda_symbols().find("cuCheckpointProcessLock") == nullptr) {
        return "the driver is too old: cuCheckpointProcess* came with 570 (CUDA 12.8)";
    }
    if (const char* const why = gate.why_no_checkpoint()) {
        return why;
    }
    if (memory.live().had_managed()) {
        return "it has managed memory, which the driver does not checkpoint";
    }
    return {};
}

std::string DriverEngine::begin(Memory& memory) {
    if (std::string problem = helper_.start(); !problem.empty()) {
        return problem;
    }
    HelperReply reply;
    if (!helper_.ask(HelperVerb::state, &reply, longest_answer_ns)) {
        return "its helper does not answer";
    }
    if (reply.result != CUDA_SUCCESS) {
        return refusal("the driver does not let its helper look at it", reply.result);
    }
    if (reply.state != number(ProcessState::running)) {
        return "somebody else checkpoints this process";
    }
    memory_.clear();
    for (Context* const context : memory.contexts().all()) {
        const CUdevice device = context->device();
        if (std::any_of(memory_.begin(), memory_.end(),
                        [device](const auto& each) { return each.device == device; })) {
            continue;
        }
        CheckpointedMemory each;
        each.device = device;
        each.uuid = device_uuid(device);
        memory_.push_back(std::move(each));
    }
    if (memory_.empty()) {
        return "it has no context";
    }
    std::vector<std::uint64_t> free;
    if (!read_free(&free)) {
        return "NVML (libnvidia-ml.so.1) does not tell its helper how much of the GPU is free, "
               "without which it could not know when to come back";
    }
    return {};
}

void DriverEngine::count_known(Memory& memory) {
    for (CheckpointedMemory& each : memory_) {
        each.least_bytes = 0;
        memory.contexts().describe_device(each.device);
        for (Context* const context : memory.contexts().all(each.device)) {
            const std::int64_t reserved = context->pool().stats().reserved_bytes.all.current;
            const std::uint64_t away = context->backend().pages().away_bytes();
            const auto all = static_cast<std::uint64_t>(std::max<std::int64_t>(reserved, 0));
            each.least_bytes += all - std::min(all, away);
            const EndGate::Use use(context->end_gate(), EndGate::max_wait_ns);
            const CurrentContext current(context->handle());
            std::size_t free = 0;
            std::size_t total = 0;
            if (device_memory_info(&free, &total) == CUDA_SUCCESS && free <= total) {
                each.used_before = total - free;
                each.total = total;
            }
        }
        const LiveAllocations::BytesByKind kinds =
            memory.live().bytes_by_kind(static_cast<std::uint32_t>(each.device));
        for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
            if (trace::counts_as_device_memory(static_cast<trace::MemoryKind>(kind))) {
                each.least_bytes += kinds[kind];
            }
        }
        each.least_bytes -= std::min(each.least_bytes, program_handles().away_bytes(each.device));
    }
}

bool DriverEngine::known_memory(CUdevice* device, std::size_t* free, std::size_t* total) const {
    *device = only_device_.load();
    *free = known_free_.load();
    *total = known_total_.load();
    return *device >= 0 && *total != 0;
}

/// Of each device.
bool DriverEngine::read_free(std::vector<std::uint64_t>* bytes) {
    bytes->clear();
    for (const CheckpointedMemory& each : memory_) {
        HelperReply reply;
        if (!helper_.ask(HelperVerb::memory, &reply, longest_answer_ns, 0, each.uuid) ||
            reply.result != 0) {
            return false;
        }
        bytes->push_back(reply.free_bytes);
    }
    return true;
}

/// The driver's, by as many helpers as that takes; unknown: none of them could tell in so long.
int DriverEngine::find_state(std::uint64_t max_wait_ns) {
    const std::uint64_t begin = profiler::monotonic_ns();
    while (!stopping_.load()) {
        HelperReply reply;
        if (helper_.start().empty() && helper_.ask(HelperVerb::state, &reply, longest_answer_ns) &&
            reply.result == CUDA_SUCCESS) {
            return reply.state;
        }
        if (profiler::monotonic_ns() - begin > max_wait_ns) {
            break;
        }
        profiler::sleep_ns(pause_between_helpers_ns);
    }
    return unknown;
}

/// Empty, or why it is not locked.
std::string DriverEngine::lock(std::uint64_t timeout_ns) {
    constexpr std::uint64_t in_millisecond = 1'000'000;
    HelperReply reply;
    const auto timeout_ms =
        static_cast<std::uint32_t>(std::max<std::uint64_t>(timeout_ns / in_millisecond, 1));
    const bool answered =
        helper_.ask(HelperVerb::lock, &reply, timeout_ns + longest_answer_ns, timeout_ms);
    if ((answered && reply.result == CUDA_SUCCESS) ||
        find_state(longest_search_ns) == number(ProcessState::locked)) {
        return {};
    }
    return answered ? refusal("the driver did not lock it", reply.result) : "its helper ended";
}

bool DriverEngine::unlock() {
    for (int attempt = 0; attempt < most_failures && !stopping_.load(); ++attempt) {
        HelperReply reply;
        if (helper_.start().empty() && helper_.ask(HelperVerb::unlock, &reply, longest_search_ns) &&
            reply.result == CUDA_SUCCESS) {
            return true;
        }
        last_error_ = reply.result;
        if (find_state(longest_search_ns) == number(ProcessState::running)) {
            return true;
        }
    }
    return false;
}

DriverEngine::Left DriverEngine::declare_lost(std::string* problem) {
    lost_.store(true);
    *problem = with_error("this process is lost: the driver could not bring its GPU memory back",
                          last_error_) +
               "; end it (kill -9), nothing of it can be restored";
    return Left::lost;
}

/// Of a process that is locked.
DriverEngine::Left DriverEngine::checkpoint(std::string* problem) {
    for (int attempt = 0; !stopping_.load(); ++attempt) {
        HelperReply reply;
        const bool answered = helper_.ask(HelperVerb::checkpoint, &reply, Helper::forever);
        last_error_ = reply.result;
        if (answered && reply.result == CUDA_SUCCESS) {
            return Left::away;
        }
        const int state = find_state(longest_search_ns);
        if (state == number(ProcessState::checkpointed)) {
            return Left::away;
        }
        if (state == number(ProcessState::failed) || state == unknown) {
            return declare_lost(problem);
        }
        if (state == number(ProcessState::running)) {
            *problem = "it was unlocked by somebody else";
            return Left::stayed;
        }
        if (answered || attempt + 1 == most_failures) {
            const int error = last_error_;
            if (!unlock()) {
                return declare_lost(problem);
            }
            *problem = answered ? refusal("the driver did not checkpoint it", error)
                                : "its helper ended again and again";
            return Left::stayed;
        }
    }
    *problem = "the process ends";
    return Left::lost;
}

DriverEngine::Left DriverEngine::leave(Memory& memory, std::uint64_t timeout_ns,
                                       std::string* problem) {
    const std::uint64_t deadline = profiler::monotonic_ns() + timeout_ns;
    std::vector<std::uint64_t> before;
    std::vector<std::uint64_t> after;
    before.reserve(memory_.size());
    after.reserve(memory_.size());
    only_device_.store(memory_.size() == 1 ? memory_.front().device : -1);
    if (memory_.size() == 1) {
        known_free_.store(memory_.front().total - memory_.front().used_before);
        known_total_.store(memory_.front().total);
    }
    gate.shut();
    while (gate.others_under_way() != 0 && problem->empty()) {
        if (stopping_.load() || profiler::monotonic_ns() >= deadline) {
            *problem = "a call of the driver did not return in time";
        } else if (gate.wanted_back()) {
            *problem = "it was called back";
        }
        profiler::sleep_ns(poll_others_ns);
    }
    if (problem->empty()) {
        *problem = why_not(memory);  // a call since it was asked may have been the first of a kind
    }
    if (problem->empty() && !read_free(&before)) {
        *problem = "its helper does not tell how much of the GPU is free";
    }
    if (problem->empty() && !keep_calls_from_driver()) {
        *problem = "the host is out of memory";
    }
    Left left = Left::stayed;
    if (problem->empty()) {
        *problem = lock(timeout_ns);
        left = problem->empty() ? checkpoint(problem) : Left::stayed;
    }
    if (left == Left::stayed) {
        let_calls_through();
        gate.unshut();
        return left;
    }
    std::uint64_t sum = 0;
    const bool read = left == Left::away && read_free(&after);
    for (std::size_t i = 0; i < memory_.size(); ++i) {
        // What others took meanwhile hides a part of it; the process had no more than was in use.
        memory_[i].bytes = read && after[i] > before[i] ? after[i] - before[i] : 0;
        memory_[i].bytes = std::max(memory_[i].bytes, memory_[i].least_bytes);
        memory_[i].free_after = read ? after[i] : 0;
        sum += memory_[i].bytes;
    }
    away_bytes_.store(sum);
    failures_ = 0;
    away_.store(true);
    return left;
}

DriverEngine::Returned DriverEngine::come_back(const std::vector<std::uint64_t>& others,
                                               std::size_t* lacking, std::string* problem) {
    int state = find_state(one_second_ns);
    if (state == unknown) {
        return Returned::not_yet;
    }
    if (state == number(ProcessState::checkpointed)) {
        std::vector<std::uint64_t> free;
        if (!read_free(&free)) {
            return Returned::not_yet;
        }
        for (std::size_t i = 0; i < memory_.size(); ++i) {
            if (free[i] < room_for(memory_[i], others[i])) {
                *lacking = i;
                return Returned::no_room;
            }
        }
        HelperReply reply;
        const bool answered = helper_.ask(HelperVerb::restore, &reply, Helper::forever);
        if (answered && reply.result != CUDA_SUCCESS) {
            last_error_ = reply.result;
            // Somebody else was faster: that may end well the next time.
            failures_ += reply.result != CUDA_ERROR_OUT_OF_MEMORY ? 1 : 0;
        }
        state = answered && reply.result == CUDA_SUCCESS ? number(ProcessState::locked)
                                                         : find_state(longest_search_ns);
    }
    if (state == number(ProcessState::failed) || failures_ >= most_failures) {
        failures_ = 0;  // an order tries again
        declare_lost(problem);
        return Returned::lost;
    }
    if (state == number(ProcessState::locked) && !unlock()) {
        if (!stopping_.load()) {
            declare_lost(problem);
        }
        return stopping_.load() ? Returned::not_yet : Returned::lost;
    }
    if (state != number(ProcessState::locked) && state != number(ProcessState::running)) {
        return Returned::not_yet;
    }
    lost_.store(false);
    away_.store(false);
    let_calls_through();
    gate.unshut();
    return Returned::back;
}

}  // namespace memlab::interpose
