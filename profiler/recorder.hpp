// The recorder: gives every event its time, thread and call site, and passes it to the event log
// and the aggregator in one order.
//
// One lock orders all records; stacks are captured and modules looked up before it is taken. Lock
// order in the process: pool -> recorder; the recorder makes no callbacks. Out of host memory it
// stops recording; no exception reaches the program.
//
// Each record is checked here, once: what refers to something undefined, an error in memlab, is
// repaired or left out, and the report says so. The log and the aggregator get valid records.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "profiler/batched_aggregator.hpp"
#include "profiler/calibrated_clock.hpp"
#include "profiler/call_sites.hpp"
#include "profiler/checkpointer.hpp"
#include "profiler/python/python_stacks.hpp"
#include "profiler/recorder_types.hpp"
#include "profiler/stack_definitions.hpp"
#include "profiler/thread_names.hpp"
#include "threads/mutex.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/definitions.hpp"
#include "trace/log_writer.hpp"
#include "trace/record.hpp"

namespace memlab::profiler {

/// Thread-safety: all member functions, from any thread, unless they say otherwise.
class Recorder final : private StackDefinitions {
  public:
    /// `log` may be null: aggregate only.
    Recorder(std::unique_ptr<trace::LogWriter> log, StackLimits stacks,
             const trace::ProcessInfo& process, python::Mode python = python::Mode::automatic);
    ~Recorder() override;
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    /// Prefetches what recording an alloc or a free_requested writes: the latter by record_freed()
    /// or, with `later`, by record().
    void prefetch(trace::EventType type, Freed freed = Freed::at_once) const noexcept
        MEMLAB_UNCHECKED_LOCKS;  // addresses alone
    /// Of record_allocated() and record_freed(Suballocation).
    void prefetch_suballocation() const noexcept MEMLAB_UNCHECKED_LOCKS;

    /// Captures and interns the caller's stack; 0 when stacks are off. Call without any lock held.
    /// `origin`: what stands for the callers of its function (call_sites.hpp).
    std::uint32_t capture_call_site(const CallOrigin& origin = {}) noexcept {
        return capture_tensor_site(origin).stack;
    }
    /// The same, and the calls of nn.Modules that the caller is inside of.
    CallSite capture_tensor_site(const CallOrigin& origin = {}) noexcept;

    /// As capture_tensor_site(), a stack that has at least the calling thread's Python frames; none
    /// without any.
    CallSite capture_python_frames() noexcept;

    /// Event::name of what the calling thread frees now: the id of the name of the garbage
    /// collector that it is inside of; 0: none. Call without any lock held.
    std::uint32_t freeing_collector() noexcept;

    /// The most frames of the call stacks that are captured from now on; 0: there are none.
    void set_stack_depth(std::uint32_t depth) noexcept { call_sites_.set_depth(depth); }
    std::uint32_t stack_depth() const noexcept { return call_sites_.stack_depth(); }

    /// The id of `text` (first 64 KiB of it), defined in the recording on first use.
    std::uint32_t string_id(std::string_view text) noexcept override;

    /// What the program calls the nn.Module at an address, and its class; empty: not known.
    void name_nn_module(std::uintptr_t address, std::string_view name,
                        std::string_view class_name) noexcept;
    /// The nn.Module at the address ends: another may be there from here on.
    void end_nn_module(std::uintptr_t address) noexcept;
    /// As NnModules' functions of these names.
    static void tell_of_unnamed_nn_modules(python::NnModules::AddPendingCall add,
                                           python::NnModules::PendingCall call) noexcept {
        python::NnModules::tell_of_unnamed(add, call);
    }
    std::size_t take_unnamed_nn_modules(std::span<std::uintptr_t> addresses) noexcept;

    /// A name that the program gives a thread, for the reports. Overrides the kernel's name of the
    /// thread, which is recorded automatically.
    void name_thread(std::uint32_t thread, std::string_view name) noexcept;

    /// Fills in the time, and the thread if it is 0.
    void record(trace::Event event) noexcept;
    /// Records a free_requested and its free_completed at the same time.
    void record_freed(trace::Event free_requested) noexcept;
    /// Record an alloc, or the two events of record_freed(), with few instructions if the last one
    /// of that type differs in block and stack only.
    void record_allocated(const Suballocation& block) noexcept;
    void record_freed(const Suballocation& block) noexcept;
    void record(trace::OomEvent event) noexcept;
    void record(trace::DeviceSample sample) noexcept;
    void record(const trace::LedgerEntry& entry) noexcept { record_rare(entry); }
    void record(const trace::Witness& witness) noexcept { record_rare(witness); }
    void record(const trace::CommunicatorMemory& memory) noexcept { record_rare(memory); }
    void record(const trace::MemoryMoved& moved) noexcept { record_rare(moved); }
    void record(const trace::OptionValue& option) noexcept { record_rare(option); }
    void record(const trace::DeviceInfo& device) noexcept { record_rare(device); }
    void record(const trace::ContextInfo& context) noexcept { record_rare(context); }
    void context_lost(std::uint32_t context) noexcept;

    /// Completed work, its times by monotonic_ns(). Work of undescribed devices, on which nothing
    /// was allocated, is dropped.
    void record_work(const trace::Work* work, std::size_t count) noexcept;
    /// The time filled in is that of the detection, not of the allocation.
    void record(const trace::Bypass& bypass) noexcept { record_rare(bypass); }
    void record(const trace::Coverage& coverage) noexcept { record_rare(coverage); }

    /// Call when the thread is about to wait for the device: flushes pending events if there are
    /// enough. Whether it did.
    bool before_waiting() noexcept;
    /// If it did: how long the thread then waited. If the device had finished by then, later calls
    /// flush less often.
    void after_waiting(std::uint64_t waited_ns) noexcept;

    /// Records that memlab could not see something: figures are lower bounds. `reason` is a
    /// sentence for the report.
    void report_missed(std::string_view reason, std::uint64_t bytes,
                       std::uint64_t count = 1) noexcept;
    /// The same of what was served or shown in another way than wished: the figures are complete.
    void report_limitation(std::string_view reason, std::uint64_t bytes,
                           std::uint64_t count = 1) noexcept;

    /// Calls `visit` with the present aggregate, under the recorder's lock: it must be quick and
    /// must not call the recorder.
    template <class Visit>
    void with_aggregate(Visit&& visit) {
        with_aggregate(
            [](void* visitor, const trace::Aggregator& aggregate) {
                (*static_cast<std::remove_reference_t<Visit>*>(visitor))(aggregate);
            },
            &visit);
    }

    /// Calls `visit` with the aggregate of this moment, while recording goes on. False, without a
    /// call, when a thread held a lock of the recorder's until `deadline_ns` of monotonic_ns(), or
    /// the recording has ended.
    template <class Visit>
    bool with_frozen_aggregate(std::uint64_t deadline_ns, Visit&& visit) {
        return with_frozen(
            deadline_ns,
            [](void* visitor, BatchedAggregator::Frozen& frozen) {
                (*static_cast<std::remove_reference_t<Visit>*>(visitor))(frozen.aggregate());
            },
            &visit);
    }
    /// The same with the intervals, which `visit` may change, before the aggregate.
    template <class Visit>
    bool with_intervals(std::uint64_t deadline_ns, Visit&& visit) {
        return with_frozen(
            deadline_ns,
            [](void* visitor, BatchedAggregator::Frozen& frozen) {
                (*static_cast<std::remove_reference_t<Visit>*>(visitor))(frozen.intervals(),
                                                                         frozen.aggregate());
            },
            &visit);
    }

    /// Ends the recording: later calls are ignored. Closes the log. `exit_code` is End's.
    void finish(trace::EndKind kind, std::int32_t exit_code = trace::End::unknown_code) noexcept;

    /// Ends only the log, if no thread is recording at the moment. Async-signal-safe: does not wait
    /// and does not use the heap.
    void finish_log_only(trace::EndKind kind, std::int32_t exit_code) noexcept;

    /// Waits until no thread is recording, for at most two seconds: a thread that holds the lock
    /// longer is taken to be dead. False on timeout.
    bool wait_until_idle() noexcept;

    /// The complete aggregate. Call after finish().
    const trace::Aggregator& aggregate();

    /// Why the log stopped early or may lack its end; empty: neither. Call after finish().
    std::string log_problem() const MEMLAB_UNCHECKED_LOCKS;

    /// Call before the program unloads an object: keeps what the recorder calls loaded. Takes the
    /// loader's lock.
    void before_unload() noexcept;

    /// In a forked child: the recording stays the parent's. Nothing may be called afterwards.
    void abandon_after_fork() MEMLAB_UNCHECKED_LOCKS;

  private:
    using Lock = BatchedAggregator::Lock;

    /// What the short form of a suballocation leaves out: the rest of the last event of its kind,
    /// in the log and in the batch.
    struct Series {
        Series() = default;
        Series(const Suballocation& block, std::uint32_t in_thread);
        explicit Series(const trace::Event& event);

        std::uint32_t device = 0;
        std::uint32_t context = 0;
        std::uint32_t api = 0;
        std::uint32_t thread = std::numeric_limits<std::uint32_t>::max();  ///< no such thread
    };
    // Of series_.
    static constexpr std::size_t allocated = 0;
    static constexpr std::size_t freed = 1;

    void define(const trace::ModuleDef& module) override { record_plain(module); }
    void define(const trace::PythonFrameDef& frame) override { record_plain(frame); }
    void define(const trace::StackDef& stack) override { record_plain(stack); }
    void define(const trace::NnModuleStackDef& stack) override { record_plain(stack); }
    void define(const trace::NnModuleName& name) override { record_plain(name); }
    void report_limitation(std::string_view reason) override { report_limitation(reason, 0, 1); }

    /// `body()`, or `fallback` without host memory: no exception may reach the program.
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
    void stop_recording() noexcept;

    template <class Frequent>
    void record_frequent(Frequent& record);
    template <std::size_t which>
    bool record_short(const Suballocation& block);
    template <class Timed>
    void record_timed(Timed& record);
    template <class Plain>
    void record_plain(const Plain& record);
    template <class Record>
    void record_rare(const Record& given) noexcept;
    void fill_in_thread(trace::Event& event) noexcept;
    void update_thread_name(std::uint32_t thread);
    void with_aggregate(void (*visit)(void*, const trace::Aggregator&), void* visitor);
    /// BatchedAggregator::Frozen releases the second lock.
    bool with_frozen(std::uint64_t deadline_ns, void (*visit)(void*, BatchedAggregator::Frozen&),
                     void* visitor) MEMLAB_UNCHECKED_LOCKS;

    /// With the lock, so that times never decrease in the log.
    [[gnu::always_inline]] std::uint64_t now() MEMLAB_REQUIRES(mutex_) {
        return clock_.now() - start_ns_;
    }
    /// Whether the record may be written, as it is then.
    template <class Record>
    [[gnu::always_inline]] bool check(Record& record) MEMLAB_REQUIRES(mutex_) {
        if (definitions_.valid(record)) [[likely]] {
            return true;
        }
        return repair(record);
    }
    template <class Record>
    [[gnu::noinline]] bool repair(Record& record) MEMLAB_REQUIRES(mutex_);
    template <class Record>
    void emit(const Record& record) MEMLAB_REQUIRES(mutex_);
    std::uint32_t string_id_locked(const std::string& text) MEMLAB_REQUIRES(mutex_);
    void report_missed_locked(std::string_view reason, std::uint64_t bytes, std::uint64_t count,
                              trace::Figures figures) MEMLAB_REQUIRES(mutex_);
    void name_thread_locked(std::uint32_t thread, const std::string& name, bool by_program)
        MEMLAB_REQUIRES(mutex_);

    // What every event uses, packed into few cache lines: the program has evicted them.
    alignas(64) threads::Mutex mutex_;
    bool finished_ MEMLAB_GUARDED_BY(mutex_) = false;
    const std::unique_ptr<trace::LogWriter> log_ MEMLAB_PT_GUARDED_BY(mutex_);
    const std::uint64_t start_ns_;
    alignas(64) CalibratedClock<MachineTime> clock_
        MEMLAB_GUARDED_BY(mutex_){counter_is_clock_source()};
    std::array<Series, 2> series_ MEMLAB_GUARDED_BY(mutex_){};
    trace::Definitions definitions_ MEMLAB_GUARDED_BY(mutex_);
    alignas(64) BatchedAggregator aggregator_;  // its caller's lock is mutex_
    std::unordered_map<std::string, std::uint32_t> strings_ MEMLAB_GUARDED_BY(mutex_);
    ThreadNames thread_names_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<bool> stuck_{false};
    const std::uint32_t first_thread_;
    const std::string process_name_;

    CallSites call_sites_;  // its locks are taken before mutex_
    Checkpointer checkpointer_{mutex_, finished_, log_.get(), aggregator_};
};

}  // namespace memlab::profiler
