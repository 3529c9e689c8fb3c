#include "interpose/process/trim_thread.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <vector>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/memory.hpp"
#include "interpose/memory/memory_limit.hpp"
#include "interpose/moving/gate.hpp"
#include "interpose/sharing/memory_requests.hpp"
#include "profiler/clock.hpp"
#include "profiler/lock_until.hpp"
#include "threads/own_thread.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t second = 1'000'000'000;
constexpr std::uint64_t min_poll_ns = 10'000'000;
constexpr std::uint64_t max_poll_ns = 250'000'000;
constexpr std::uint64_t max_wait_for_trim_ns = second;
constexpr std::uint64_t max_between_releases_ns = 10 * second;
constexpr std::uint64_t between_answers_ns = 1'000'000;  // whoever asks all the time gets no core
constexpr std::uint64_t context_bytes = 512ULL << 20;    // what another process needs to begin with
// For a call that releases the context and does not end it; for one that does the thread comes
// again.
constexpr std::uint64_t max_wait_for_release_ns = 10'000'000;

/// Less than a context takes, or an eighth of a small device, is free. Costs one cuMemGetInfo.
bool is_short_of_memory(const Context& context) {
    const CurrentContext current(context.handle());
    std::size_t free = 0;
    std::size_t total = 0;
    return device_memory_info(&free, &total) == CUDA_SUCCESS &&
           free < std::min<std::uint64_t>(context_bytes, total / 8);
}

/// The memory in use, after some of it was given back: no call of the program's may follow for
/// long.
void sample(Memory& memory, const Context& context) {
    if (!memory.has_recorder()) {
        return;
    }
    const CurrentContext current(context.handle());
    if (const std::optional<UsedMemory> used = used_memory(memory)) {
        record_sample(memory, context.device(), *used);
    }
}

}  // namespace

bool TrimThread::start(Memory& memory, std::uint64_t trim_after_ns) {
    if (trim_after_ns == 0 || started_.exchange(true)) {
        return false;
    }
    memory_ = &memory;
    trim_after_ns_ = trim_after_ns;
    return threads::start_own_thread(&TrimThread::run, this);
}

void TrimThread::child_starts() noexcept {
    if (started_.load(std::memory_order_relaxed)) {
        child_ns_.store(profiler::monotonic_ns());
        requests_.wake_own();
    }
}

std::uint64_t TrimThread::give_back(Memory& memory, std::uint64_t kept, std::uint64_t until_ns) {
    struct Part {
        Context* context;
        std::uint64_t wanted;  // of what was unused at the beginning
    };
    std::vector<Part> parts;
    for (Context* context : memory.contexts().all()) {
        if (const std::uint64_t unused = context->unused_bytes(); unused > kept) {
            parts.push_back({context, unused});
        }
    }
    std::uint64_t bytes = 0;
    for (;;) {
        {
            const threads::LockGuard lock(mutex_);
            for (Part& part : parts) {
                const EndGate::Use use(part.context->end_gate(), max_wait_for_release_ns);
                if (stopped_.load() || !use.held() ||
                    !part.context->backend().frees_without_waiting()) {
                    continue;
                }
                const std::uint64_t released = part.context->pool().release_cached(false);
                sample(memory, *part.context);
                part.wanted -= std::min(part.wanted, released);
                bytes += released;
            }
        }
        std::erase_if(parts, [](const Part& part) {
            return std::min(part.wanted, part.context->unused_bytes()) == 0;
        });
        if (parts.empty() || stopped_.load() || profiler::monotonic_ns() >= until_ns) {
            return bytes;
        }
        profiler::sleep_ns(min_poll_ns);
    }
}

void TrimThread::stop() {
    stopped_.store(true);
    if (profiler::lock_until(mutex_, profiler::monotonic_ns() + max_wait_for_trim_ns)) {
        mutex_.unlock();
    }
}

void* TrimThread::run(void* self) {
    const InsideMemlab inside;
    static_cast<TrimThread*>(self)->loop();
    return nullptr;
}

/// How often to look where only looking tells. With half the time that memory stays unused it is
/// back after one and a half times as long.
std::uint64_t TrimThread::poll_ns() const {
    return std::clamp(trim_after_ns_ / 2, min_poll_ns, max_poll_ns);
}

void TrimThread::loop() {
    bool asked = false;
    while (!stopped_.load()) {
        // One that started long ago, while there was nothing to give, has what it needs.
        const std::uint64_t child_ns = child_ns_.exchange(0);
        const bool for_child = child_ns != 0 && profiler::monotonic_ns() - child_ns < second;
        std::uint64_t next = 0;
        mutex_.lock();
        if (!stopped_.load()) {
            const OtherPassage passage;
            next = passage.must_not_call() ? profiler::monotonic_ns() + max_poll_ns
                                           : trim(for_child, asked);
        }
        mutex_.unlock();
        wait(next, &asked);
    }
}

/// Whether anything is held that could go back, now or later.
bool TrimThread::has_work() {
    try {
        const std::vector<Context*> contexts = memory_->contexts().all();
        return stopped_.load() || std::any_of(contexts.begin(), contexts.end(), [](Context* each) {
                   return each->pool().next_tick() != allocator::Pool::no_tick;
               });
    } catch (const std::bad_alloc&) {
        return true;
    }
}

/// Those that have pools, as MemoryRequests has them: more may become unused during a wait.
std::uint32_t TrimThread::devices_to_serve() {
    std::uint32_t bits = 0;
    try {
        for (Context* context : memory_->contexts().all()) {
            const auto device = static_cast<std::size_t>(context->device());
            if (device >= device_bits_.size()) {
                device_bits_.resize(device + 1);
            }
            if (device_bits_[device] == 0) {
                device_bits_[device] = MemoryRequests::bit_of(context->device());
            }
            bits |= device_bits_[device];
        }
    } catch (const std::bad_alloc&) {  // those so far
    }
    return bits;
}

/// Until then, or, if there is nothing to wait for, until something has become unused and a little
/// longer; less long if another process asks or a child starts.
void TrimThread::wait(std::uint64_t until_ns, bool* asked) {
    if (until_ns == allocator::Pool::no_tick) {
        memory_->sleep_until_unused([this] { return has_work(); });
        // The program goes on, and may need it again at once.
        until_ns = profiler::monotonic_ns() + poll_ns();
    } else if (*asked) {
        profiler::sleep_ns(between_answers_ns);
    }
    *asked = false;
    if (child_ns_.load() == 0) {
        *asked = requests_.wait(devices_to_serve(), until_ns);
    }
}

/// Returns when to look again; Pool::no_tick: when something has become unused.
std::uint64_t TrimThread::trim(bool for_child, bool asked) {
    const std::uint64_t now = profiler::monotonic_ns();
    const std::uint64_t poll = now + poll_ns();
    std::uint64_t next = allocator::Pool::no_tick;
    try {
        const std::vector<Context*> contexts = memory_->contexts().all();
        std::vector<std::int64_t> frees_before;
        frees_before.reserve(contexts.size());
        for (Context* context : contexts) {
            frees_before.push_back(context->pool().stats().num_device_free);
        }
        const auto all = [](const Context&) { return true; };
        if (asked) {
            std::int64_t growths = 0;
            release_unused(all, &growths);
        } else if (for_child) {
            release_unused(children_, now, all);
        }
        const bool long_time = trim_after_ns_ > second;
        if (long_time) {
            release_unused(shortages_, now, is_short_of_memory);
        }
        for (std::size_t i = 0; i < contexts.size(); ++i) {
            Context& context = *contexts[i];
            if (stopped_.load()) {
                return next;
            }
            bool looked = false;
            bool more = false;
            do {
                const EndGate::Use use(context.end_gate(), max_wait_for_release_ns);
                if (!use.held() || !context.backend().frees_without_waiting()) {
                    break;  // at the next tick
                }
                context.pool().tick(now, &more);
                looked = true;
            } while (more && !stopped_.load());
            const EndGate::Use use(context.end_gate(), max_wait_for_release_ns);
            if (use.held() && context.pool().stats().num_device_free != frees_before[i]) {
                sample(*memory_, context);
            }
            std::uint64_t due = context.pool().next_tick();
            if (due != allocator::Pool::no_tick) {
                due = !looked || due == 0 ? poll : std::max(due, now + min_poll_ns);
                next = std::min({next, due, long_time ? now + second : due});
            }
        }
    } catch (const std::bad_alloc&) {
        next = poll;
    }
    return next;
}

/// All that is unused in the contexts for which `wanted` is true. Whether anything went back.
template <class Wanted>
bool TrimThread::release_unused(const Wanted& wanted, std::int64_t* growths) {
    bool released = false;
    for (Context* context : memory_->contexts().all()) {
        if (stopped_.load()) {
            return released;
        }
        *growths += context->pool().stats().num_device_alloc;
        const EndGate::Use use(context->end_gate(), max_wait_for_release_ns);
        if (use.held() && context->unused_bytes() != 0 &&
            context->backend().frees_without_waiting() && wanted(*context)) {
            released = context->pool().release_cached(false) != 0 || released;
        }
    }
    return released;
}

/// The same, unless it was given back for the same reason lately.
template <class Wanted>
void TrimThread::release_unused(Pace& pace, std::uint64_t now_ns, const Wanted& wanted) {
    std::int64_t growths = 0;
    if (now_ns < pace.next_ns || !release_unused(wanted, &growths)) {
        return;
    }
    const bool needed_again = growths > pace.growths_seen;
    pace.between_ns = needed_again && pace.between_ns != 0
                          ? std::min(2 * pace.between_ns, max_between_releases_ns)
                          : std::min(trim_after_ns_, second);
    pace.growths_seen = growths;
    pace.next_ns = now_ns + pace.between_ns;
}

}  // namespace memlab::interpose
