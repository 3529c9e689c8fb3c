#include "profiler/recorder.hpp"

#include <algorithm>
#include <utility>

#include "profiler/clock.hpp"
#include "profiler/lock_until.hpp"
#include "profiler/thread_id.hpp"
#include "profiler/thread_name.hpp"

namespace memlab::profiler {

Recorder::Recorder(std::unique_ptr<trace::LogWriter> log, StackLimits stacks,
                   const trace::ProcessInfo& process, python::Mode python)
    : log_(std::move(log)),
      start_ns_(process.start_monotonic_ns),
      first_thread_(process.pid),
      process_name_(process_name()),
      call_sites_(*this, stacks.depth, stacks.max_stacks, python) {
    emit(process);
}

Recorder::~Recorder() = default;

/// Out of host memory: keeps what was recorded. The log lacks its End, so reads as truncated.
void Recorder::stop_recording() noexcept {
    const threads::LockGuard lock(mutex_);
    finished_ = true;
}

// ---- with the lock

/// Reports the defect; false: the record cannot be repaired.
template <class Record>
[[gnu::noinline]] bool Recorder::repair(Record& record) {
    const bool repaired = definitions_.repair(record);
    // Reporting this records a string and a Missed, so a loss of those cannot be reported.
    if constexpr (!std::is_same_v<Record, trace::StringDef> &&
                  !std::is_same_v<Record, trace::Missed>) {
        report_missed_locked(repaired ? "names or frames were not defined before their use (an "
                                        "error in memlab): what uses them is shown without them"
                                      : "records were lost: what they are about was not "
                                        "defined before them (an error in memlab)",
                             0, 1, repaired ? trace::Figures::complete : trace::Figures::at_least);
    }
    if constexpr (requires { record.time_ns; }) {
        record.time_ns = now();  // the report came before it
    }
    return repaired;
}
template bool Recorder::repair(trace::Event& record);
template bool Recorder::repair(trace::DeviceSample& record);

/// Any record but events and device samples.
template <class Record>
void Recorder::emit(const Record& record) {
    if (finished_) {
        return;
    }
    if (!definitions_.accept(record)) [[unlikely]] {
        Record copy = record;
        if (repair(copy)) {
            emit(copy);
        }
        return;
    }
    if (log_) {
        log_->on(record);
    }
    aggregator_.on(record);
}

std::uint32_t Recorder::string_id_locked(const std::string& text) {
    const auto [it, added] =
        strings_.try_emplace(text, static_cast<std::uint32_t>(strings_.size() + 1));
    if (added) {
        trace::StringDef definition;
        definition.id = it->second;
        definition.text = text;
        emit(definition);
    }
    return it->second;
}

void Recorder::report_missed_locked(std::string_view reason, std::uint64_t bytes,
                                    std::uint64_t count, trace::Figures figures) {
    trace::Missed missed;
    missed.figures = figures;
    missed.reason = string_id_locked(std::string(reason));
    missed.bytes = bytes;
    missed.count = count;
    missed.time_ns = now();
    emit(missed);
}

void Recorder::name_thread_locked(std::uint32_t thread, const std::string& name, bool by_program) {
    const std::string* const changed =
        finished_ ? nullptr : thread_names_.change(thread, name, by_program);
    if (changed != nullptr) {
        trace::ThreadInfo info;
        info.thread = thread;
        info.name = changed->empty() ? 0 : string_id_locked(*changed);
        emit(info);
    }
}

// ---- names

void Recorder::before_unload() noexcept {
    guarded([&] { call_sites_.before_unload(); });
}

std::uint32_t Recorder::string_id(std::string_view text) noexcept {
    return guarded(std::uint32_t{0}, [&] {
        const std::string key(text.substr(0, 65536));
        const threads::LockGuard lock(mutex_);
        return string_id_locked(key);
    });
}

void Recorder::name_nn_module(std::uintptr_t address, std::string_view name,
                              std::string_view class_name) noexcept {
    guarded([&] { call_sites_.nn_modules().name(address, name, class_name); });
}

void Recorder::end_nn_module(std::uintptr_t address) noexcept {
    guarded([&] { call_sites_.nn_modules().end(address); });
}

std::size_t Recorder::take_unnamed_nn_modules(std::span<std::uintptr_t> addresses) noexcept {
    return guarded(std::size_t{0},
                   [&] { return call_sites_.nn_modules().take_unnamed(addresses); });
}

void Recorder::name_thread(std::uint32_t thread, std::string_view name) noexcept {
    guarded([&] {
        const std::string text(name);
        const threads::LockGuard lock(mutex_);
        name_thread_locked(thread, text, true);
    });
}

/// Records the thread's own kernel name, if any, unless the program named it by name_thread().
void Recorder::update_thread_name(std::uint32_t thread) {
    if (thread == first_thread_) {
        return;  // the main thread
    }
    std::string name = own_thread_name();
    if (name == process_name_) {
        name.clear();  // inherited
    }
    const threads::LockGuard lock(mutex_);
    if (!thread_names_.given_by_program(thread)) {
        name_thread_locked(thread, name, false);
    }
}

// ---- other records

template <class Timed>
void Recorder::record_timed(Timed& record) {
    const threads::LockGuard lock(mutex_);
    record.time_ns = now();
    emit(record);
}

template <class Plain>
void Recorder::record_plain(const Plain& record) {
    const threads::LockGuard lock(mutex_);
    emit(record);
}

template <class Record>
void Recorder::record_rare(const Record& given) noexcept {
    guarded([&] {
        if constexpr (requires { given.time_ns; }) {
            Record record = given;
            record_timed(record);
        } else {
            record_plain(given);
        }
    });
}
template void Recorder::record_rare(const trace::LedgerEntry&) noexcept;
template void Recorder::record_rare(const trace::Witness&) noexcept;
template void Recorder::record_rare(const trace::CommunicatorMemory&) noexcept;
template void Recorder::record_rare(const trace::MemoryMoved&) noexcept;
template void Recorder::record_rare(const trace::OptionValue&) noexcept;
template void Recorder::record_rare(const trace::DeviceInfo&) noexcept;
template void Recorder::record_rare(const trace::ContextInfo&) noexcept;
template void Recorder::record_rare(const trace::Bypass&) noexcept;
template void Recorder::record_rare(const trace::Coverage&) noexcept;

void Recorder::record(trace::OomEvent event) noexcept {
    event.thread = thread_id();
    guarded([&] {
        update_thread_name(event.thread);  // it may have been named since its first event
        record_timed(event);
    });
}

void Recorder::context_lost(std::uint32_t context) noexcept {
    trace::ContextLost lost;
    lost.context = context;
    guarded([&] { record_timed(lost); });
}

void Recorder::record_work(const trace::Work* work, std::size_t count) noexcept {
    const auto since_start = [this](std::uint64_t time_ns) {
        return time_ns > start_ns_ ? time_ns - start_ns_ : 0;
    };
    guarded([&] {
        const threads::LockGuard lock(mutex_);
        for (std::size_t i = 0; i < count; ++i) {
            trace::Work one = work[i];
            if (!definitions_.knows(trace::Definition::device, one.device)) {
                continue;
            }
            one.start_ns = since_start(one.start_ns);
            one.end_ns = std::max(one.start_ns, since_start(one.end_ns));
            emit(one);
        }
    });
}

void Recorder::report_missed(std::string_view reason, std::uint64_t bytes,
                             std::uint64_t count) noexcept {
    guarded([&] {
        const threads::LockGuard lock(mutex_);
        report_missed_locked(reason, bytes, count, trace::Figures::at_least);
    });
}

void Recorder::report_limitation(std::string_view reason, std::uint64_t bytes,
                                 std::uint64_t count) noexcept {
    guarded([&] {
        const threads::LockGuard lock(mutex_);
        report_missed_locked(reason, bytes, count, trace::Figures::complete);
    });
}

// ---- the end, and the aggregate

void Recorder::finish(trace::EndKind kind, std::int32_t exit_code) noexcept {
    guarded([&] {
        const threads::LockGuard lock(mutex_);
        if (finished_) {
            return;
        }
        trace::End end{.time_ns = now(), .kind = kind, .exit_code = exit_code};
        const auto tell_dropped = [&end](const trace::LogWriter& log) {
            end.events_dropped = log.events_dropped();
            end.log_stopped_because = log.stopped_because();
        };
        if (log_) {
            tell_dropped(*log_);
            log_->on(end);
            tell_dropped(*log_);  // it may have noticed only now
        }
        aggregator_.on(end);
        finished_ = true;
        if (log_) {
            log_->close();
        }
    });
}

void Recorder::finish_log_only(trace::EndKind kind, std::int32_t exit_code) noexcept {
    if (!mutex_.try_lock()) {
        return;
    }
    const threads::LockGuard lock(mutex_, std::adopt_lock);
    if (finished_ || !log_) {
        return;
    }
    trace::End end{.time_ns = now(), .kind = kind, .exit_code = exit_code};
    log_->on(end);
    finished_ = true;
    log_->close();
}

bool Recorder::wait_until_idle() noexcept {
    constexpr std::uint64_t timeout_ns = 2'000'000'000;
    const auto lockable = [until_ns = monotonic_ns() + timeout_ns](threads::Mutex& mutex) {
        if (!lock_until(mutex, until_ns)) {
            return false;
        }
        mutex.unlock();
        return true;
    };
    if (!stuck_ && !(lockable(mutex_) && lockable(aggregator_.aggregation_mutex()))) {
        stuck_ = true;  // never wait for it again
    }
    return !stuck_;
}

const trace::Aggregator& Recorder::aggregate() {
    const threads::LockGuard lock(mutex_);
    return aggregator_.flush();
}

void Recorder::with_aggregate(void (*visit)(void*, const trace::Aggregator&), void* visitor) {
    const threads::LockGuard lock(mutex_);
    visit(visitor, aggregator_.flush());
}

bool Recorder::with_frozen(std::uint64_t deadline_ns,
                           void (*visit)(void*, BatchedAggregator::Frozen&), void* visitor) {
    if (!lock_until(mutex_, deadline_ns)) {
        return false;
    }
    Lock lock(mutex_, std::adopt_lock);
    if (finished_ || !lock_until(aggregator_.aggregation_mutex(), deadline_ns)) {
        return false;
    }
    BatchedAggregator::Frozen frozen(aggregator_, std::adopt_lock);
    lock.unlock();
    visit(visitor, frozen);
    return true;
}

std::string Recorder::log_problem() const {
    if (!log_) {
        return {};
    }
    return log_->stopped_because().empty() ? log_->incomplete_because() : log_->stopped_because();
}

void Recorder::abandon_after_fork() {
    if (log_) {
        log_->abandon_after_fork();
    }
}

}  // namespace memlab::profiler
