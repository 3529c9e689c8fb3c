#include "profiler/recorder.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <mutex>
#include <new>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "profiler/batched_aggregator.hpp"
#include "profiler/calibrated_clock.hpp"
#include "profiler/clock.hpp"
#include "profiler/lock_until.hpp"
#include "profiler/python/python_stacks.hpp"
#include "profiler/scratch.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/stack_hash.hpp"
#include "profiler/stack_table.hpp"
#include "profiler/thread_id.hpp"
#include "profiler/thread_name.hpp"
#include "profiler/unwind/unloads.hpp"
#include "trace/definitions.hpp"
#include "trace/no_cancellation.hpp"
#include "trace/prefetch.hpp"

namespace memlab::profiler {

class Recorder::Impl final : private StackDefinitions {
  public:
    Impl(std::unique_ptr<trace::LogWriter> log, StackLimits stacks,
         const trace::ProcessInfo& process, python::Mode python)
        : log_(std::move(log)),
          start_ns_(process.start_monotonic_ns),
          first_thread_(process.pid),
          process_name_(process_name()),
          stack_depth_(stacks.depth),
          stacks_(*this, stacks.most),
          python_(python, stacks.depth, *this) {
        emit(process);
    }

    void prefetch(trace::EventType type, Freed freed) const noexcept {
        trace::prefetch_to_write<sizeof mutex_ + sizeof finished_>(&mutex_);
        trace::prefetch_to_write<sizeof clock_>(&clock_);
        aggregator_.prefetch(type == trace::EventType::free_requested && freed == Freed::at_once
                                 ? EventTemplates::freed
                                 : EventTemplates::sort_of(type));
        if (log_) {
            log_->prefetch(type);
        }
    }

    std::uint32_t capture_call_site() {
        if (stack_depth_ == 0) {
            return 0;
        }
        if (!python_.looking()) {
            return capture();
        }
        look_for_python();
        const std::uint32_t id = capture();
        look_for_python();
        // This thread has found it, or another one while this one walked its stack.
        return python_.found() ? capture() : id;
    }

    std::uint32_t string_id(std::string_view text) override {
        const std::string key(text.substr(0, 65536));
        const std::lock_guard lock(mutex_);
        return string_id_locked(key);
    }

    /// Of those that a program makes all the time.
    template <class Timed>
    void record_frequent(Timed& record) {
        std::unique_lock lock(mutex_);
        record.time_ns = now();
        if (write(record)) {
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
        aggregator_.add_freed(event, lock);
    }

    bool before_waiting() {
        std::unique_lock lock(mutex_);
        return aggregator_.catch_up(lock);
    }

    void after_waiting(std::uint64_t waited_ns) {
        // Far more than a call takes that finds the device done, 0.4 us, and far less than to add
        // up what is worth it.
        constexpr std::uint64_t a_while_ns = 10'000;
        aggregator_.caught_up(waited_ns >= a_while_ns);
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
            one.end_ns = since_start(one.end_ns);
            emit(one);
        }
    }

    template <class Plain>
    void record_plain(const Plain& record) {
        const std::lock_guard lock(mutex_);
        emit(record);
    }

    void missed(std::string_view reason, std::uint64_t bytes, std::uint64_t count) {
        const std::lock_guard lock(mutex_);
        missed_locked(reason, bytes, count);
    }

    /// The calling thread's name, where it has one of its own. A name that the program gave it in
    /// so many words stays.
    void note_thread_name(std::uint32_t thread) {
        if (thread == first_thread_) {
            return;  // what everybody calls main
        }
        std::string name = own_thread_name();
        if (name == process_name_) {
            name.clear();  // what it began with
        }
        const std::lock_guard lock(mutex_);
        const auto known = thread_names_.find(thread);
        if (known == thread_names_.end() || !known->second.by_program) {
            name_thread_locked(thread, name, false);
        }
    }

    void name_thread(std::uint32_t thread, const std::string& name) {
        const std::lock_guard lock(mutex_);
        name_thread_locked(thread, name, true);
    }

    // No exception may reach the program whose call is being recorded.
    template <class Value, class Body>
    Value quietly(Value otherwise, const Body& body) noexcept {
        try {
            return body();
        } catch (const std::bad_alloc&) {
            give_up();
            return otherwise;
        }
    }

    template <class Body>
    void quietly(const Body& body) noexcept {
        quietly(0, [&] {
            body();
            return 0;
        });
    }

    // The host is out of memory: what was recorded so far stays, and nothing is added. The log
    // then lacks its End and reads as cut off, which is true.
    void give_up() noexcept {
        const std::lock_guard lock(mutex_);
        finished_ = true;
    }

    void finish(trace::EndKind kind, std::int32_t exit_code) {
        const std::lock_guard lock(mutex_);
        if (finished_) {
            return;
        }
        trace::End end;
        end.kind = kind;
        end.exit_code = exit_code;
        end.time_ns = now();
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
        trace::End end;
        end.kind = kind;
        end.exit_code = exit_code;
        end.time_ns = now();
        log_->on(end);
        finished_ = true;
        log_->close();
    }

    bool comes_free() {
        constexpr std::uint64_t patience_ns = 2'000'000'000;
        const std::uint64_t until_ns = monotonic_ns() + patience_ns;
        const auto lockable = [until_ns](std::mutex& mutex) {
            if (!lock_until(mutex.native_handle(), until_ns)) {
                return false;
            }
            mutex.unlock();
            return true;
        };
        if (!kept_for_ever_ && !(lockable(mutex_) && lockable(aggregator_.turn()))) {
            kept_for_ever_ = true;  // nobody need wait for it again
        }
        return !kept_for_ever_;
    }

    const trace::Aggregator& aggregate() {
        const std::lock_guard lock(mutex_);
        return aggregator_.all();
    }

    void look_at(void (*look)(void*, const trace::Aggregator&), void* object) {
        const std::lock_guard lock(mutex_);
        look(object, aggregator_.all());
    }

    std::string log_problem() const {
        if (!log_ || !log_->stopped_because().empty()) {
            return log_ ? log_->stopped_because() : std::string();
        }
        return log_->incomplete_because();
    }

    void before_unload() { python_.before_unload(); }

    void abandon_after_fork() {
        if (log_) {
            log_->abandon_after_fork();
        }
    }

  private:
    void define(const trace::ModuleDef& module) override { record_plain(module); }
    void define(const trace::PythonFrameDef& frame) override { record_plain(frame); }
    void define(const trace::StackDef& stack) override { record_plain(stack); }
    void missed(std::string_view reason) override { missed(reason, 0, 1); }

    /// Once a stack led through a Python.
    void look_for_python() {
        if (python_.looking() && stacks_.interpreter() != 0) [[unlikely]] {
            python_.look(stacks_.interpreter());
        }
    }

    // What a deep stack takes has no room on a small one.
    struct DeepStack {
        CapturedStack native;
        python::FrameRoom<CapturedStack::max_depth> frames;
        std::uint64_t merged[CapturedStack::max_depth];
    };

    [[gnu::hot]] std::uint32_t capture() {
        if (stack_depth_ > ShortStack::max_depth) [[unlikely]] {
            return capture_deep();
        }
        ShortStack native;
        const std::uint64_t epoch = capture_native(native);
        return python_.found() ? merged_id_of(native, epoch) : id_of(native, epoch);
    }

    [[gnu::noinline]] std::uint32_t capture_deep() {
        const Scratch<DeepStack> scratch;
        DeepStack* const deep = scratch.get();
        if (deep == nullptr) {
            throw std::bad_alloc();
        }
        const std::uint64_t epoch = capture_native(deep->native);
        return python_.found() ? merged_id_of(deep->native, deep->frames, epoch,
                                              [&](const StackHash& parts) {
                                                  return merge(deep->native, deep->frames,
                                                               deep->merged, parts, epoch);
                                              })
                               : id_of(deep->native, epoch);
    }

    /// The calling thread's stack, and the epoch that it is of.
    template <std::size_t room>
    [[gnu::always_inline]] std::uint64_t capture_native(StackRoom<room>& native) {
        capture_stack(native, stack_depth_);
        const std::uint64_t epoch =
            unwind::is_unloading() ? StackTable::no_epoch : unwind::unload_epoch();
        if (python_.looking() && native.ends_early) [[unlikely]] {
            python_.look(python_.interpreter_above(
                reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))));
        }
        return epoch;
    }

    // Its frames are not on the stack while the native ones are walked: what lies deeper there is
    // not in the processor's caches.
    [[gnu::hot, gnu::noinline]] std::uint32_t merged_id_of(const ShortStack& native,
                                                           std::uint64_t epoch) {
        python::FrameRoom<ShortStack::max_depth> frames;
        return merged_id_of(native, frames, epoch, [&](const StackHash& parts) {
            return merge_short(native, frames, parts, epoch);
        });
    }

    template <class Merge>
    [[gnu::always_inline]] std::uint32_t merged_id_of(const StackView& native,
                                                      python::Frames& frames, std::uint64_t epoch,
                                                      const Merge& merge_parts) {
        if (!python_.read(frames)) {
            return id_of(native, epoch);
        }
        const StackHash parts = python::hash_of_parts(native, frames, epoch);
        const std::uint32_t known = python_.merged_stack_cache().find(parts);
        return known != 0 ? known : merge_parts(parts);
    }

    std::uint32_t id_of(const StackView& native, std::uint64_t epoch) {
        return stacks_.id_of({native.addresses, native.depth}, native.truncated, epoch);
    }

    [[gnu::noinline]] std::uint32_t merge_short(const StackView& native,
                                                const python::Frames& frames,
                                                const StackHash& parts, std::uint64_t epoch) {
        std::uint64_t words[ShortStack::max_depth];
        return merge(native, frames, words, parts, epoch);
    }

    std::uint32_t merge(const StackView& native, const python::Frames& frames,
                        std::span<std::uint64_t> words, const StackHash& parts,
                        std::uint64_t epoch) {
        python::MergedStack merged;
        merged.words = words;
        const std::uint32_t id =
            python_.merge(native, frames, merged)
                ? stacks_.id_of(words.first(merged.depth), merged.truncated, epoch, &merged.python)
                : id_of(native, epoch);
        if (id != 0 && epoch != StackTable::no_epoch) {
            python_.merged_stack_cache().keep(parts, id);
        }
        return id;
    }

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

    void missed_locked(std::string_view reason, std::uint64_t bytes, std::uint64_t count) {
        trace::Missed missed;
        missed.reason = string_id_locked(std::string(reason));
        missed.bytes = bytes;
        missed.count = count;
        missed.time_ns = now();
        emit(missed);
    }

    void name_thread_locked(std::uint32_t thread, const std::string& name, bool by_program) {
        // Threads come and go, and a program may name each of them otherwise.
        const bool enough = names_given_ == max_names_given;
        if (finished_ || ((name.empty() || enough) && !thread_names_.contains(thread))) {
            return;
        }
        ThreadName& current = thread_names_[thread];
        current.by_program = by_program;
        const std::string next = enough ? std::string() : name;
        if (current.name == name || current.name == next) {
            return;
        }
        current.name = next;
        names_given_ += enough ? 0 : 1;
        trace::ThreadInfo info;
        info.thread = thread;
        info.name = next.empty() ? 0 : string_id_locked(next);
        emit(info);
    }

    // Under mutex_, so that times never decrease in the log.
    std::uint64_t now() { return clock_.now() - start_ns_; }

    /// To the log. False when the recording is over: then it goes nowhere.
    template <class Record>
    bool write(const Record& record) {
        if (!finished_ && log_) {
            log_->on(record);
        }
        return !finished_;
    }

    /// Any other record. One that names what was never defined goes on without the name, and that
    /// is counted: neither the log nor the aggregator would take it, nor the definitions behind it.
    template <class Record>
    void emit(const Record& record) {
        constexpr bool names_frames = std::is_same_v<Record, trace::StackDef> ||
                                      std::is_same_v<Record, trace::PythonFrameDef>;
        if constexpr (names_frames) {
            if (!definitions_.valid(record)) {
                Record repaired = record;
                if (definitions_.repair(repaired)) {
                    missed_locked(
                        "frames of call stacks were not defined before their use (an error in "
                        "memlab): they are shown without their names",
                        0, 1);
                    emit(repaired);
                }
                return;
            }
        }
        if (!write(record)) {
            return;
        }
        definitions_.accept(record);
        aggregator_.on(record);
    }

    struct ThreadName {
        std::string name;
        bool by_program = false;
    };
    static constexpr std::size_t max_names_given = trace::Aggregator::max_thread_names;

    // What every event needs first, in as few lines of the cache as it takes: the program has
    // driven them out since the last one.
    alignas(64) std::mutex mutex_;
    bool finished_ = false;
    const std::unique_ptr<trace::LogWriter> log_;
    const std::uint64_t start_ns_;
    alignas(64) CalibratedClock<MachineTime> clock_{counter_keeps_time()};
    alignas(64) BatchedAggregator aggregator_;  // in the order of mutex_
    trace::Definitions definitions_;
    std::unordered_map<std::string, std::uint32_t> strings_;
    std::unordered_map<std::uint32_t, ThreadName> thread_names_;
    std::size_t names_given_ = 0;
    std::atomic<bool> kept_for_ever_{false};
    const std::uint32_t first_thread_;
    const std::string process_name_;

    // Their locks come before mutex_.
    const std::uint32_t stack_depth_;
    StackTable stacks_;
    python::PythonStacks python_;
};

Recorder::Recorder(std::unique_ptr<trace::LogWriter> log, StackLimits stacks,
                   const trace::ProcessInfo& process, python::Mode python)
    : impl_(std::make_unique<Impl>(std::move(log), stacks, process, python)) {}

Recorder::~Recorder() = default;

[[gnu::hot]] void Recorder::prefetch(trace::EventType type, Freed freed) const noexcept {
    impl_->prefetch(type, freed);
}

[[gnu::hot]] std::uint32_t Recorder::capture_call_site() noexcept {
    return impl_->quietly(std::uint32_t{0}, [&] { return impl_->capture_call_site(); });
}

std::uint32_t Recorder::string_id(std::string_view text) noexcept {
    return impl_->quietly(std::uint32_t{0}, [&] { return impl_->string_id(text); });
}

void Recorder::name_thread(std::uint32_t thread, std::string_view name) noexcept {
    impl_->quietly([&] { impl_->name_thread(thread, std::string(name)); });
}

/// Where it is not told. The first time, the calling thread's name is recorded before.
void Recorder::fill_in_thread(trace::Event& event) noexcept {
    if (event.thread == 0) {
        event.thread = introduced_thread_id();
        if (event.thread == 0) [[unlikely]] {
            const trace::NoCancellation no_cancellation;
            introduce_thread();
            event.thread = thread_id();
            impl_->quietly([&] { impl_->note_thread_name(event.thread); });
        }
    }
}

[[gnu::hot]] void Recorder::record(trace::Event event) noexcept {
    fill_in_thread(event);
    impl_->quietly([&] { impl_->record_frequent(event); });
}

[[gnu::hot]] void Recorder::record_freed(trace::Event free_requested) noexcept {
    fill_in_thread(free_requested);
    impl_->quietly([&] { impl_->record_freed(free_requested); });
}

void Recorder::record(trace::OomEvent event) noexcept {
    event.thread = thread_id();
    impl_->quietly([&] {
        impl_->note_thread_name(event.thread);  // it may have got one since its first event
        impl_->record_timed(event);
    });
}

void Recorder::record(trace::DeviceSample sample) noexcept {
    impl_->quietly([&] { impl_->record_frequent(sample); });
}

void Recorder::record(const trace::OptionValue& option) noexcept {
    impl_->quietly([&] { impl_->record_plain(option); });
}

void Recorder::record(const trace::DeviceInfo& device) noexcept {
    impl_->quietly([&] { impl_->record_plain(device); });
}

void Recorder::record(const trace::ContextInfo& context) noexcept {
    impl_->quietly([&] { impl_->record_plain(context); });
}

void Recorder::context_lost(std::uint32_t context) noexcept {
    trace::ContextLost lost;
    lost.context = context;
    impl_->quietly([&] { impl_->record_timed(lost); });
}

void Recorder::record_work(const trace::Work* work, std::size_t count) noexcept {
    impl_->quietly([&] { impl_->record_work(work, count); });
}

void Recorder::record(trace::Bypass bypass) noexcept {
    impl_->quietly([&] { impl_->record_timed(bypass); });
}

void Recorder::record(trace::Coverage coverage) noexcept {
    impl_->quietly([&] { impl_->record_timed(coverage); });
}

void Recorder::missed(std::string_view reason, std::uint64_t bytes, std::uint64_t count) noexcept {
    impl_->quietly([&] { impl_->missed(reason, bytes, count); });
}

bool Recorder::before_waiting() noexcept {
    bool used = false;
    impl_->quietly([&] { used = impl_->before_waiting(); });
    return used;
}

void Recorder::after_waiting(std::uint64_t waited_ns) noexcept {
    impl_->after_waiting(waited_ns);
}

void Recorder::finish(trace::EndKind kind, std::int32_t exit_code) noexcept {
    impl_->quietly([&] { impl_->finish(kind, exit_code); });
}

void Recorder::finish_log_only(trace::EndKind kind, std::int32_t exit_code) noexcept {
    impl_->finish_log_only(kind, exit_code);
}

bool Recorder::comes_free() noexcept {
    return impl_->comes_free();
}

const trace::Aggregator& Recorder::aggregate() const {
    return impl_->aggregate();
}

void Recorder::look_at(void (*look)(void*, const trace::Aggregator&), void* object) const {
    impl_->look_at(look, object);
}

void Recorder::before_unload() noexcept {
    impl_->quietly([&] { impl_->before_unload(); });
}

std::string Recorder::log_problem() const {
    return impl_->log_problem();
}

void Recorder::abandon_after_fork() {
    impl_->abandon_after_fork();
}

}  // namespace memlab::profiler
