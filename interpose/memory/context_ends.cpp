// Contexts that end, or may: what must be over before a call that may destroy one, and what follows
// the end of one. A thread to which the driver gives memory of such a context waits
// until its loss is recorded.
#include <algorithm>
#include <array>

#include "interpose/driver/nested_frees.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/memory/context_registry.hpp"
#include "interpose/memory/memory.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {

bool ContextRegistry::any_has_peers() const {
    const threads::SharedLockGuard lock(mutex_);
    return std::any_of(contexts_.begin(), contexts_.end(), [](const auto& each) {
        return each.second->backend().fences().had_peers();
    });
}

Context* ContextRegistry::before_destroy(CUcontext handle) {
    if (any_has_peers()) {
        std::size_t index = 0;
        while (Context* const context = next(-1, &index)) {
            context->backend().fences().before_peer_destroy(handle);
        }
    }
    Context* const ending = find(handle);
    if (ending == nullptr || ending->handle() != handle) {  // a green context has no memory
        return nullptr;
    }
    ending->end_gate().begin();
    ending_.fetch_add(1, std::memory_order_acq_rel);
    return ending;
}

void ContextRegistry::after_destroy(CUcontext handle, Context* ended, bool destroyed) {
    if (handle == nullptr) {
        return;
    }
    // A free that runs before this runs beside the call that destroys: it may as well precede it.
    if (destroyed) {
        broken_context_possible.store(true, std::memory_order_relaxed);
    }
    // Another thread may have got the handle again and found out that this context is no more.
    const bool replaced = ended != nullptr && find(handle) != ended;
    if (destroyed && !replaced) {
        drop(handle, ended);
    }
    if (ended != nullptr) {
        if (destroyed) {
            const threads::LockGuard lock(mutex_);
            std::erase(dropped_, ended);
        }
        ended->end_gate().finish();
        ending_.fetch_sub(1, std::memory_order_acq_rel);
    }
    if (replaced) {
        return;
    }
    if (any_has_peers()) {
        std::size_t index = 0;
        while (Context* const context = next(-1, &index)) {
            context->backend().fences().after_peer_destroy(handle, destroyed);
        }
    }
    if (destroyed) {
        {
            const threads::LockGuard lock(mutex_);
            std::erase_if(device_accesses_, [handle](const DeviceAccess& access) {
                return access.accessor == handle;
            });
        }
        if (memory_.captures().end_all(handle)) {
            on_capture_ended();
        }
    }
}

namespace {

/// Contexts that calls under way may end. Beyond their number: all.
class EndingContexts {
  public:
    void add(const Context* context) {
        if (context->ending()) {
            more_ = more_ || count_ == ids_.size();
            ids_[more_ ? 0 : count_++] = context->id();
        }
    }
    bool any() const { return count_ != 0; }
    bool has(std::uint32_t id) const {
        return more_ || std::find(ids_.begin(), ids_.begin() + count_, id) != ids_.begin() + count_;
    }

  private:
    std::array<std::uint32_t, 16> ids_{};
    std::uint32_t count_ = 0;
    bool more_ = false;
};

}  // namespace

bool ContextRegistry::has_earlier_owner(std::uint64_t address, std::uint64_t bytes,
                                        const Context* but) const {
    if (memory_.live().is_being_freed(address, bytes)) {
        return true;
    }
    if (!any_ending()) {
        return false;
    }
    EndingContexts ending;
    {
        const threads::SharedLockGuard lock(mutex_);
        std::for_each(dropped_.begin(), dropped_.end(),
                      [&](const Context* each) { ending.add(each); });
        for (const auto& [handle, context] : contexts_) {
            if (context != but) {
                ending.add(context);
            }
        }
    }
    if (!ending.any()) {
        return false;
    }
    for (std::uint64_t at = address & ~(SegmentIndex::page - 1); at < address + bytes;
         at += SegmentIndex::page) {
        const Context* const owner = memory_.segments().find(at);
        if (owner != nullptr && owner != but && owner->ending()) {
            return true;
        }
    }
    return memory_.live().is_leaving(address, bytes, [&](std::uint32_t context) {
        return (but == nullptr || context != but->id()) && ending.has(context);
    });
}

void ContextRegistry::wait_for_earlier_owner(std::uint64_t address, std::uint64_t bytes,
                                             const Context* but) const {
    constexpr std::uint64_t max_wait_ns = 1'000'000'000;
    constexpr std::uint64_t interval_ns = 20'000;
    // Most calls that may end a context have returned in less time than a search takes.
    constexpr int most_pauses = 50;
    for (int i = 0; i < most_pauses && any_ending(); ++i) {
        __builtin_ia32_pause();
    }
    if (!has_earlier_owner(address, bytes, but)) {
        return;
    }
    const std::uint64_t until = profiler::monotonic_ns() + max_wait_ns;
    do {
        profiler::sleep_ns(interval_ns);
    } while (has_earlier_owner(address, bytes, but) && profiler::monotonic_ns() < until);
}

void ContextRegistry::drop(CUcontext handle, const Context* expected) {
    Context* context = nullptr;
    {
        const threads::LockGuard lock(mutex_);
        const auto it = contexts_.find(handle);
        if (it == contexts_.end() || (expected != nullptr && it->second != expected)) {
            return;
        }
        if (it->second->handle() != handle) {  // a green context
            contexts_.erase(it);
            generation_.fetch_add(1, std::memory_order_release);
            return;
        }
        context = it->second;
        one_stream.begin_switch("a context that ended");
        dropped_.push_back(context);
        std::erase_if(contexts_, [context](const auto& entry) { return entry.second == context; });
        std::erase(used_by_graphs_, context);
        generation_.fetch_add(1, std::memory_order_release);
    }
    // Callbacks in the driver call that ended it may have freed some of its memory. Later its
    // addresses may be another context's.
    nested_frees.drain(
        [&](CUdeviceptr address) { return memory_.segments().find(address) == context; },
        [&](Api api, CUdeviceptr address) {
            context->pool().free(address, make_tag(memory_.api_id(api), 0),
                                 allocator::FenceTiming::deferred);
        });
    context->pool().abandon();
    // Recorded before new memory at its addresses: its own is unmapped last, and a thread that gets
    // memory that the driver has freed waits for what follows.
    if (profiler::Recorder* recorder = memory_.recorder()) {
        recorder->context_lost(context->id());
    }
    memory_.segments().remove_all(context);
    memory_.live().remove_context(context->id());
    memory_.suballocators().remove_context(context->id());
    context->backend().fences().after_context_destroy();
    context->backend().pages().release_all();
}

}  // namespace memlab::interpose
