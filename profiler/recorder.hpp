// The recorder: gives every event its time, thread and call site, and passes it to the event log
// and the aggregator in one order.
//
// One lock orders all records; stacks are captured and modules looked up before it is taken. Lock
// order in the process: pool -> recorder; the recorder makes no callbacks. Out of host memory it
// stops recording; no exception reaches the program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "profiler/python/python_stacks.hpp"
#include "profiler/recorder_types.hpp"
#include "profiler/stack_capture.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_writer.hpp"
#include "trace/record.hpp"

namespace memlab::profiler {

class RecorderState;

/// Thread-safety: all member functions, from any thread, unless they say otherwise.
class Recorder {
  public:
    /// `log` may be null: aggregate only.
    Recorder(std::unique_ptr<trace::LogWriter> log, StackLimits stacks,
             const trace::ProcessInfo& process, python::Mode python = python::Mode::automatic);
    ~Recorder();
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    /// Prefetches what recording an alloc or a free_requested writes: the latter by record_freed()
    /// or, with `later`, by record().
    void prefetch(trace::EventType type, Freed freed = Freed::at_once) const noexcept;
    /// Of record_allocated() and record_freed(Suballocation).
    void prefetch_suballocation() const noexcept;

    /// Captures and interns the caller's stack; 0 when stacks are off. Call without any lock held.
    /// `origin`: what stands for the callers of its function (call_sites.hpp).
    std::uint32_t capture_call_site(const CallOrigin& origin = {}) noexcept;

    /// The id of a stack that has at least the calling thread's Python frames; 0 without any.
    std::uint32_t capture_python_frames() noexcept;

    /// Event::name of what the calling thread frees now: the id of the name of the garbage
    /// collector that it is inside of; 0: none. Call without any lock held.
    std::uint32_t freeing_collector() noexcept;

    /// The id of `text` (first 64 KiB of it), defined in the recording on first use.
    std::uint32_t string_id(std::string_view text) noexcept;

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

    /// Records something that memlab could not see or serve; `reason` is a sentence for the report.
    void report_missed(std::string_view reason, std::uint64_t bytes,
                       std::uint64_t count = 1) noexcept;

    /// Calls `visit` with the present aggregate, under the recorder's lock: it must be quick and
    /// must not call the recorder.
    template <class Visit>
    void with_aggregate(Visit&& visit) const {
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
        return with_frozen_aggregate(
            deadline_ns,
            [](void* visitor, const trace::Aggregator& aggregate) {
                (*static_cast<std::remove_reference_t<Visit>*>(visitor))(aggregate);
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
    const trace::Aggregator& aggregate() const;

    /// Why the log stopped early or may lack its end; empty: neither. Call after finish().
    std::string log_problem() const;

    /// Call before the program unloads an object: keeps what the recorder calls loaded. Takes the
    /// loader's lock.
    void before_unload() noexcept;

    /// In a forked child: the recording stays the parent's. Nothing may be called afterwards.
    void abandon_after_fork();

  private:
    template <class Record>
    void record_rare(const Record& given) noexcept;
    void with_aggregate(void (*visit)(void*, const trace::Aggregator&), void* visitor) const;
    bool with_frozen_aggregate(std::uint64_t deadline_ns,
                               void (*visit)(void*, const trace::Aggregator&), void* visitor);
    void fill_in_thread(trace::Event& event) noexcept;

    std::unique_ptr<RecorderState> state_;
};

}  // namespace memlab::profiler
