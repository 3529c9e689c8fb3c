#include "profiler/recorder.hpp"

#include "profiler/recorder_state.hpp"
#include "profiler/thread_id.hpp"
#include "threads/no_cancellation.hpp"

namespace memlab::profiler {

Recorder::Recorder(std::unique_ptr<trace::LogWriter> log, StackLimits stacks,
                   const trace::ProcessInfo& process, python::Mode python)
    : state_(std::make_unique<RecorderState>(std::move(log), stacks, process, python)) {}

Recorder::~Recorder() = default;

[[gnu::hot]] void Recorder::prefetch(trace::EventType type, Freed freed) const noexcept {
    state_->prefetch(type, freed);
}

[[gnu::hot]] std::uint32_t Recorder::capture_python_frames() noexcept {
    return state_->guarded(std::uint32_t{0}, [&] { return state_->capture_python_frames(); });
}

[[gnu::hot]] std::uint32_t Recorder::capture_call_site(const CallOrigin& origin) noexcept {
    return state_->guarded(std::uint32_t{0}, [&] { return state_->capture_call_site(origin); });
}

[[gnu::hot]] std::uint32_t Recorder::freeing_collector() noexcept {
    return state_->inside_collector() ? state_->collector_name() : 0;
}

std::uint32_t Recorder::string_id(std::string_view text) noexcept {
    return state_->guarded(std::uint32_t{0}, [&] { return state_->string_id(text); });
}

void Recorder::name_thread(std::uint32_t thread, std::string_view name) noexcept {
    state_->guarded([&] { state_->name_thread(thread, std::string(name)); });
}

/// Sets the thread if it is 0. On a thread's first event its name is recorded first.
void Recorder::fill_in_thread(trace::Event& event) noexcept {
    if (event.thread == 0) {
        event.thread = registered_thread_id();
        if (event.thread == 0) [[unlikely]] {
            const threads::NoCancellation no_cancellation;
            register_thread();
            event.thread = thread_id();
            state_->guarded([&] { state_->update_thread_name(event.thread); });
        }
    }
}

[[gnu::hot]] void Recorder::record(trace::Event event) noexcept {
    fill_in_thread(event);
    state_->guarded([&] { state_->record_frequent(event); });
}

[[gnu::hot]] void Recorder::record_freed(trace::Event free_requested) noexcept {
    fill_in_thread(free_requested);
    state_->guarded([&] { state_->record_freed(free_requested); });
}

trace::Event Suballocation::event(trace::EventType type) const {
    trace::Event event;
    event.type = type;
    event.kind = trace::MemoryKind::suballocation;
    event.origin = trace::Origin::pool;
    event.device = device;
    event.context = context;
    event.api = api;
    event.stack = stack;
    event.address = address;
    event.requested = bytes;
    event.size = bytes;
    return event;
}

[[gnu::hot]] void Recorder::prefetch_suballocation() const noexcept {
    state_->prefetch_suballocation();
}

[[gnu::hot]] void Recorder::record_allocated(const Suballocation& block) noexcept {
    if (!state_->guarded(true,
                         [&] { return state_->record_short<RecorderState::allocated>(block); })) {
        record(block.event(trace::EventType::alloc));
    }
}

[[gnu::hot]] void Recorder::record_freed(const Suballocation& block) noexcept {
    if (!state_->guarded(true, [&] { return state_->record_short<RecorderState::freed>(block); })) {
        record_freed(block.event(trace::EventType::free_requested));
    }
}

void Recorder::record(trace::OomEvent event) noexcept {
    event.thread = thread_id();
    state_->guarded([&] {
        state_->update_thread_name(event.thread);  // it may have been named since its first event
        state_->record_timed(event);
    });
}

void Recorder::record(trace::DeviceSample sample) noexcept {
    state_->guarded([&] { state_->record_frequent(sample); });
}

template <class Record>
void Recorder::record_rare(const Record& given) noexcept {
    state_->guarded([&] {
        if constexpr (requires { given.time_ns; }) {
            Record record = given;
            state_->record_timed(record);
        } else {
            state_->record_plain(given);
        }
    });
}
template void Recorder::record_rare(const trace::LedgerEntry&) noexcept;
template void Recorder::record_rare(const trace::Witness&) noexcept;
template void Recorder::record_rare(const trace::CommunicatorMemory&) noexcept;
template void Recorder::record_rare(const trace::OptionValue&) noexcept;
template void Recorder::record_rare(const trace::DeviceInfo&) noexcept;
template void Recorder::record_rare(const trace::ContextInfo&) noexcept;
template void Recorder::record_rare(const trace::Bypass&) noexcept;
template void Recorder::record_rare(const trace::Coverage&) noexcept;

void Recorder::context_lost(std::uint32_t context) noexcept {
    trace::ContextLost lost;
    lost.context = context;
    state_->guarded([&] { state_->record_timed(lost); });
}

void Recorder::record_work(const trace::Work* work, std::size_t count) noexcept {
    state_->guarded([&] { state_->record_work(work, count); });
}

void Recorder::report_missed(std::string_view reason, std::uint64_t bytes,
                             std::uint64_t count) noexcept {
    state_->guarded([&] { state_->report_missed(reason, bytes, count); });
}

bool Recorder::before_waiting() noexcept {
    return state_->guarded(false, [&] { return state_->before_waiting(); });
}

void Recorder::after_waiting(std::uint64_t waited_ns) noexcept {
    state_->after_waiting(waited_ns);
}

void Recorder::finish(trace::EndKind kind, std::int32_t exit_code) noexcept {
    state_->guarded([&] { state_->finish(kind, exit_code); });
}

void Recorder::finish_log_only(trace::EndKind kind, std::int32_t exit_code) noexcept {
    state_->finish_log_only(kind, exit_code);
}

bool Recorder::wait_until_idle() noexcept {
    return state_->wait_until_idle();
}

const trace::Aggregator& Recorder::aggregate() const {
    return state_->aggregate();
}

void Recorder::with_aggregate(void (*visit)(void*, const trace::Aggregator&), void* visitor) const {
    state_->with_aggregate(visit, visitor);
}

bool Recorder::with_frozen_aggregate(std::uint64_t deadline_ns,
                                     void (*visit)(void*, const trace::Aggregator&),
                                     void* visitor) {
    return state_->with_frozen_aggregate(deadline_ns, visit, visitor);
}

void Recorder::before_unload() noexcept {
    state_->guarded([&] { state_->before_unload(); });
}

std::string Recorder::log_problem() const {
    return state_->log_problem();
}

void Recorder::abandon_after_fork() {
    state_->abandon_after_fork();
}

}  // namespace memlab::profiler
