// Recording events: what every allocation of the program runs.
#include <cstring>

#include "profiler/recorder.hpp"
#include "profiler/thread_id.hpp"
#include "threads/no_cancellation.hpp"
#include "trace/prefetch.hpp"

namespace memlab::profiler {

[[gnu::hot]] CallSite Recorder::capture_python_frames() noexcept {
    return guarded(CallSite{}, [&] { return call_sites_.capture_python_frames(); });
}

[[gnu::hot]] CallSite Recorder::capture_tensor_site(const CallOrigin& origin) noexcept {
    return guarded(CallSite{}, [&] { return call_sites_.capture_call_site(origin); });
}

[[gnu::hot]] std::uint32_t Recorder::freeing_collector() noexcept {
    return call_sites_.inside_collector() ? string_id("Python's garbage collector") : 0;
}

/// Sets the thread if it is 0. On a thread's first event its name is recorded first.
inline void Recorder::fill_in_thread(trace::Event& event) noexcept {
    if (event.thread == 0) {
        event.thread = registered_thread_id();
        if (event.thread == 0) [[unlikely]] {
            const threads::NoCancellation no_cancellation;
            register_thread();
            event.thread = thread_id();
            guarded([&] { update_thread_name(event.thread); });
        }
    }
}

[[gnu::hot]] void Recorder::prefetch(trace::EventType type, Freed freed) const noexcept {
    trace::prefetch_to_write<sizeof mutex_ + sizeof finished_>(&mutex_);
    trace::prefetch_to_write<sizeof clock_ + sizeof series_ + sizeof definitions_>(&clock_);
    aggregator_.prefetch(type == trace::EventType::free_requested && freed == Freed::at_once
                             ? EventTemplates::freed_slot
                             : EventTemplates::slot(type));
    if (log_) {
        log_->prefetch(type);
    }
}

[[gnu::hot]] void Recorder::prefetch_suballocation() const noexcept {
    trace::prefetch_to_write<sizeof mutex_ + sizeof finished_>(&mutex_);
    trace::prefetch_to_write<sizeof clock_ + sizeof series_>(&clock_);
    aggregator_.prefetch_short();
    if (log_) {
        log_->prefetch_short();
    }
}

/// The frequent records: events and device samples.
template <class Frequent>
[[gnu::always_inline]] inline void Recorder::record_frequent(Frequent& record) {
    Lock lock(mutex_);
    if (finished_) {
        return;
    }
    record.time_ns = now();
    if (!check(record)) [[unlikely]] {
        return;
    }
    if (log_) [[likely]] {
        log_->on(record);
    }
    if constexpr (std::is_same_v<Frequent, trace::Event>) {
        if (record.type == trace::EventType::alloc) {
            series_[allocated] = Series(record);
        } else if (record.type == trace::EventType::free_requested) {
            series_[freed] = Series();
        }
    }
    aggregator_.add(record, lock);
}

[[gnu::hot]] void Recorder::record(trace::Event event) noexcept {
    fill_in_thread(event);
    guarded([&] { record_frequent(event); });
}

[[gnu::hot]] void Recorder::record_freed(trace::Event free_requested) noexcept {
    fill_in_thread(free_requested);
    guarded([&] {
        Lock lock(mutex_);
        if (finished_) {
            return;
        }
        free_requested.time_ns = now();
        if (!check(free_requested)) [[unlikely]] {
            return;
        }
        if (log_) [[likely]] {
            log_->on_freed(free_requested);
        }
        series_[freed] = Series(free_requested);
        aggregator_.add_freed(free_requested, lock);
    });
}

inline Recorder::Series::Series(const Suballocation& block, std::uint32_t in_thread)
    : device(block.device), context(block.context), api(block.api), thread(in_thread) {}

inline Recorder::Series::Series(const trace::Event& event) {
    if (event.kind == trace::MemoryKind::suballocation && event.origin == trace::Origin::pool &&
        (event.name | event.correlation | event.stream) == 0) {
        device = event.device;
        context = event.context;
        api = event.api;
        thread = event.thread;
    }
}

/// Records it if it goes on with its series. This, not the common way, is what a training runs a
/// thousand times a step, each time from cold caches.
template <std::size_t which>
[[gnu::always_inline]] inline bool Recorder::record_short(const Suballocation& block) {
    const Series series(block, registered_thread_id());
    Lock lock(mutex_);
    if (std::memcmp(&series, &series_[which], sizeof series) != 0 || finished_ ||
        !definitions_.valid_stack(block.stack) || !definitions_.valid_nn_modules(block.nn_modules))
        [[unlikely]] {
        return false;
    }
    const trace::ShortEvent event{now(), block.address, block.bytes, block.stack, block.nn_modules};
    if (!EventBatch::fits_short(event) || (log_ && !log_->on_short(event, which == freed)))
        [[unlikely]] {
        return false;
    }
    aggregator_.add_short(
        event,
        which == freed ? EventTemplates::freed_slot : EventTemplates::slot(trace::EventType::alloc),
        lock);
    return true;
}

[[gnu::hot]] void Recorder::record_allocated(const Suballocation& block) noexcept {
    if (!guarded(true, [&] { return record_short<allocated>(block); })) {
        record(block.event(trace::EventType::alloc));
    }
}

[[gnu::hot]] void Recorder::record_freed(const Suballocation& block) noexcept {
    if (!guarded(true, [&] { return record_short<freed>(block); })) {
        record_freed(block.event(trace::EventType::free_requested));
    }
}

void Recorder::record(trace::DeviceSample sample) noexcept {
    guarded([&] { record_frequent(sample); });
}

bool Recorder::before_waiting() noexcept {
    return guarded(false, [&] {
        Lock lock(mutex_);
        return aggregator_.flush_if_idle(lock);
    });
}

void Recorder::after_waiting(std::uint64_t waited_ns) noexcept {
    // Far more than a call takes that finds the device idle (0.4 us), far less than a flush.
    constexpr std::uint64_t min_idle_ns = 10'000;
    aggregator_.report_idle_wait(waited_ns >= min_idle_ns);
}

}  // namespace memlab::profiler
