// What a recorder does, most of it under its lock.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "profiler/batched_aggregator.hpp"
#include "profiler/calibrated_clock.hpp"
#include "profiler/call_sites.hpp"
#include "profiler/checkpointer.hpp"
#include "profiler/clock.hpp"
#include "profiler/lock_until.hpp"
#include "profiler/python/python_stacks.hpp"
#include "profiler/recorder_types.hpp"
#include "profiler/thread_id.hpp"
#include "profiler/thread_name.hpp"
#include "profiler/thread_names.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/definitions.hpp"
#include "trace/log_writer.hpp"
#include "trace/prefetch.hpp"

namespace memlab::profiler {

class RecorderState final : private StackDefinitions {
  public:
    // Of series_.
    static constexpr std::size_t allocated = 0;
    static constexpr std::size_t freed = 1;

    RecorderState(std::unique_ptr<trace::LogWriter> log, StackLimits stacks,
                  const trace::ProcessInfo& process, python::Mode python)
        : log_(std::move(log)),
          start_ns_(process.start_monotonic_ns),
          first_thread_(process.pid),
          process_name_(process_name()),
          call_sites_(*this, stacks.depth, stacks.max_stacks, python) {
        emit(process);
    }

    void prefetch(trace::EventType type, Freed freed) const noexcept {
        trace::prefetch_to_write<sizeof mutex_ + sizeof finished_>(&mutex_);
        trace::prefetch_to_write<sizeof clock_>(&clock_);
        aggregator_.prefetch(type == trace::EventType::free_requested && freed == Freed::at_once
                                 ? EventTemplates::freed_slot
                                 : EventTemplates::slot(type));
        if (log_) {
            log_->prefetch(type);
        }
    }

    [[gnu::always_inline]] void prefetch_suballocation() const noexcept {
        trace::prefetch_to_write<sizeof mutex_ + sizeof finished_>(&mutex_);
        trace::prefetch_to_write<sizeof clock_ + sizeof series_>(&clock_);
        aggregator_.prefetch_short();
        if (log_) {
            log_->prefetch_short();
        }
    }

    std::uint32_t capture_call_site(const CallOrigin& origin) {
        return call_sites_.capture_call_site(origin);
    }
    std::uint32_t capture_python_frames() { return call_sites_.capture_python_frames(); }
    bool inside_collector() const { return call_sites_.inside_collector(); }
    [[gnu::noinline]] std::uint32_t collector_name() {
        return guarded(std::uint32_t{0}, [&] { return string_id("Python's garbage collector"); });
    }

    std::uint32_t string_id(std::string_view text) override {
        const std::string key(text.substr(0, 65536));
        const std::lock_guard lock(mutex_);
        return string_id_locked(key);
    }

    /// The frequent records: events and device samples.
    template <class Timed>
    void record_frequent(Timed& record) {
        std::unique_lock lock(mutex_);
        record.time_ns = now();
        if (write(record)) {
            if constexpr (std::is_same_v<Timed, trace::Event>) {
                if (record.type == trace::EventType::alloc) {
                    series_[allocated] = Series(record);
                } else if (record.type == trace::EventType::free_requested) {
                    series_[freed] = Series();
                }
            }
            aggregator_.add(record, lock);
        }
    }

    void record_freed(trace::Event& event) {
        std::unique_lock lock(mutex_);
        if (finished_) {
            return;
        }
        event.time_ns = now();
        if (log_) {
            log_->on_freed(event);
        }
        series_[freed] = Series(event);
        aggregator_.add_freed(event, lock);
    }

    /// Records it if it goes on with its series. This, not the common way, is what a training runs
    /// a thousand times a step, each time from cold caches.
    template <std::size_t which>
    [[gnu::always_inline]] bool record_short(const Suballocation& block) {
        const Series series(block, registered_thread_id());
        std::unique_lock lock(mutex_);
        if (std::memcmp(&series, &series_[which], sizeof series) != 0 || finished_) [[unlikely]] {
            return false;
        }
        const trace::ShortEvent event{now(), block.address, block.bytes, block.stack};
        if (!EventBatch::fits_short(event) || (log_ && !log_->on_short(event, which == freed)))
            [[unlikely]] {
            return false;
        }
        aggregator_.add_short(event,
                              which == freed ? EventTemplates::freed_slot
                                             : EventTemplates::slot(trace::EventType::alloc),
                              lock);
        return true;
    }

    bool before_waiting() {
        std::unique_lock lock(mutex_);
        return aggregator_.flush_if_idle(lock);
    }

    void after_waiting(std::uint64_t waited_ns) {
        // Far more than a call takes that finds the device idle (0.4 us), far less than a flush.
        constexpr std::uint64_t min_idle_ns = 10'000;
        aggregator_.report_idle_wait(waited_ns >= min_idle_ns);
    }

    template <class Timed>
    void record_timed(Timed& record) {
        const std::lock_guard lock(mutex_);
        record.time_ns = now();
        emit(record);
    }

    void record_work(const trace::Work* work, std::size_t count) {
        const auto since_start = [this](std::uint64_t time_ns) {
            return time_ns > start_ns_ ? time_ns - start_ns_ : 0;
        };
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < count; ++i) {
            trace::Work one = work[i];
            if (!aggregator_.is_described(one.device)) {
                continue;
            }
            one.start_ns = since_start(one.start_ns);
            one.end_ns = std::max(one.start_ns, since_start(one.end_ns));
            emit(one);
        }
    }

    template <class Plain>
    void record_plain(const Plain& record) {
        const std::lock_guard lock(mutex_);
        emit(record);
    }

    void report_missed(std::string_view reason, std::uint64_t bytes, std::uint64_t count) {
        const std::lock_guard lock(mutex_);
        report_missed_locked(reason, bytes, count);
    }

    /// Records the thread's own kernel name, if any, unless the program named it by name_thread().
    void update_thread_name(std::uint32_t thread) {
        if (thread == first_thread_) {
            return;  // the main thread
        }
        std::string name = own_thread_name();
        if (name == process_name_) {
            name.clear();  // inherited
        }
        const std::lock_guard lock(mutex_);
        if (!thread_names_.given_by_program(thread)) {
            name_thread_locked(thread, name, false);
        }
    }

    void name_thread(std::uint32_t thread, const std::string& name) {
        const std::lock_guard lock(mutex_);
        name_thread_locked(thread, name, true);
    }

    // No exception may reach the program.
    template <class Value, class Body>
    Value guarded(Value fallback, const Body& body) noexcept {
        try {
            return body();
        } catch (const std::bad_alloc&) {
            stop_recording();
            return fallback;
        }
    }

    template <class Body>
    void guarded(const Body& body) noexcept {
        guarded(0, [&] {
            body();
            return 0;
        });
    }

    // Out of host memory: keeps what was recorded. The log lacks its End, so reads as truncated.
    void stop_recording() noexcept {
        const std::lock_guard lock(mutex_);
        finished_ = true;
    }

    void finish(trace::EndKind kind, std::int32_t exit_code) {
        const std::lock_guard lock(mutex_);
        if (finished_) {
            return;
        }
        trace::End end{.time_ns = now(), .kind = kind, .exit_code = exit_code};
        if (log_) {
            end.events_dropped = log_->events_dropped();
            end.log_stopped_because = log_->stopped_because();
        }
        emit(end);
        finished_ = true;
        if (log_) {
            log_->close();
        }
    }

    void finish_log_only(trace::EndKind kind, std::int32_t exit_code) {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (!lock.owns_lock() || finished_ || !log_) {
            return;
        }
        trace::End end{.time_ns = now(), .kind = kind, .exit_code = exit_code};
        log_->on(end);
        finished_ = true;
        log_->close();
    }

    bool wait_until_idle() {
        constexpr std::uint64_t timeout_ns = 2'000'000'000;
        const auto lockable = [until_ns = monotonic_ns() + timeout_ns](std::mutex& mutex) {
            if (!lock_until(mutex.native_handle(), until_ns)) {
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

    const trace::Aggregator& aggregate() {
        const std::lock_guard lock(mutex_);
        return aggregator_.flush();
    }

    void with_aggregate(void (*visit)(void*, const trace::Aggregator&), void* visitor) {
        const std::lock_guard lock(mutex_);
        visit(visitor, aggregator_.flush());
    }

    bool with_frozen_aggregate(std::uint64_t deadline_ns,
                               void (*visit)(void*, const trace::Aggregator&), void* visitor) {
        if (!lock_until(mutex_.native_handle(), deadline_ns)) {
            return false;
        }
        std::unique_lock lock(mutex_, std::adopt_lock);
        if (finished_ ||
            !lock_until(aggregator_.aggregation_mutex().native_handle(), deadline_ns)) {
            return false;
        }
        const BatchedAggregator::Frozen frozen(aggregator_, std::adopt_lock);
        lock.unlock();
        visit(visitor, frozen.aggregate());
        return true;
    }

    std::string log_problem() const {
        if (!log_ || !log_->stopped_because().empty()) {
            return log_ ? log_->stopped_because() : std::string();
        }
        return log_->incomplete_because();
    }

    void before_unload() { call_sites_.before_unload(); }

    void abandon_after_fork() {
        if (log_) {
            log_->abandon_after_fork();
        }
    }

  private:
    void define(const trace::ModuleDef& module) override { record_plain(module); }
    void define(const trace::PythonFrameDef& frame) override { record_plain(frame); }
    void define(const trace::StackDef& stack) override { record_plain(stack); }
    void report_missed(std::string_view reason) override { report_missed(reason, 0, 1); }

    std::uint32_t string_id_locked(const std::string& text) {
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

    void report_missed_locked(std::string_view reason, std::uint64_t bytes, std::uint64_t count) {
        trace::Missed missed;
        missed.reason = string_id_locked(std::string(reason));
        missed.bytes = bytes;
        missed.count = count;
        missed.time_ns = now();
        emit(missed);
    }

    void name_thread_locked(std::uint32_t thread, const std::string& name, bool by_program) {
        const std::string* const changed =
            finished_ ? nullptr : thread_names_.change(thread, name, by_program);
        if (changed != nullptr) {
            trace::ThreadInfo info;
            info.thread = thread;
            info.name = changed->empty() ? 0 : string_id_locked(*changed);
            emit(info);
        }
    }

    // Under mutex_, so that times never decrease in the log.
    std::uint64_t now() { return clock_.now() - start_ns_; }

    /// Writes to the log. False if the recording has ended.
    template <class Record>
    bool write(const Record& record) {
        if (!finished_ && log_) {
            log_->on(record);
        }
        return !finished_;
    }

    /// Any other record. What neither the log nor the aggregator would accept is repaired, or left
    /// out, and counted.
    template <class Record>
    void emit(const Record& record) {
        if (!definitions_.valid(record)) [[unlikely]] {
            emit_repaired(record);
        } else if (write(record)) {
            definitions_.accept(record);
            aggregator_.on(record);
        }
    }

    template <class Record>
    [[gnu::noinline]] void emit_repaired(Record record) {
        if (finished_) {
            return;
        }
        const bool repaired = definitions_.repair(record);
        // Reporting this records a string and a Missed, so a loss of those cannot be reported.
        if constexpr (!std::is_same_v<Record, trace::StringDef> &&
                      !std::is_same_v<Record, trace::Missed>) {
            report_missed_locked(repaired ? "names or frames were not defined before their use (an "
                                            "error in memlab): what uses them is shown without them"
                                          : "records were lost: what they are about was not "
                                            "defined before them (an error in memlab)",
                                 0, 1);
        }
        if (repaired) {
            emit(record);
        }
    }

    /// What the short form of a suballocation leaves out: the rest of the last event of its kind,
    /// in the log and in the batch.
    struct Series {
        Series() = default;
        Series(const Suballocation& block, std::uint32_t in_thread)
            : device(block.device), context(block.context), api(block.api), thread(in_thread) {}
        explicit Series(const trace::Event& event) {
            if (event.kind == trace::MemoryKind::suballocation &&
                event.origin == trace::Origin::pool &&
                (event.name | event.correlation | event.stream) == 0) {
                device = event.device;
                context = event.context;
                api = event.api;
                thread = event.thread;
            }
        }
        std::uint32_t device = 0;
        std::uint32_t context = 0;
        std::uint32_t api = 0;
        std::uint32_t thread = std::numeric_limits<std::uint32_t>::max();  ///< no such thread
    };
    // What every event uses, packed into few cache lines: the program has evicted them.
    alignas(64) std::mutex mutex_;
    bool finished_ = false;
    const std::unique_ptr<trace::LogWriter> log_;
    const std::uint64_t start_ns_;
    alignas(64) CalibratedClock<MachineTime> clock_{counter_is_clock_source()};
    std::array<Series, 2> series_{};
    alignas(64) BatchedAggregator aggregator_;  // its caller's lock is mutex_
    trace::Definitions definitions_;
    std::unordered_map<std::string, std::uint32_t> strings_;
    ThreadNames thread_names_;
    std::atomic<bool> stuck_{false};
    const std::uint32_t first_thread_;
    const std::string process_name_;

    CallSites call_sites_;  // its locks are taken before mutex_
    Checkpointer checkpointer_{mutex_, finished_, log_.get(), aggregator_};
};

}  // namespace memlab::profiler
