// The recorder: gives every event its time, thread and call site, and feeds it to the event log and
// the aggregator in one order.
//
// One lock orders everything; stacks are captured and modules looked up before it is taken. Lock
// order in the process: pool -> recorder; the recorder calls nobody back. Out of host memory it
// stops recording; nothing is ever thrown at the program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "profiler/python/python_stacks.hpp"
#include "profiler/stack_table.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_writer.hpp"
#include "trace/record.hpp"

namespace memlab::profiler {

struct StackLimits {
    std::uint32_t depth;  ///< frames of a stack; 0: no stacks
    std::uint32_t most = StackTable::default_most_stacks;
};

/// When a free_requested has its free_completed.
enum class Freed : std::uint8_t { at_once, later };

/// Thread-safety: all member functions, from any thread, unless they say otherwise.
class Recorder {
  public:
    /// `log` may be null: then only the aggregate is kept.
    Recorder(std::unique_ptr<trace::LogWriter> log, StackLimits stacks,
             const trace::ProcessInfo& process, python::Mode python = python::Mode::automatic);
    ~Recorder();
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    /// An alloc or a free_requested will be recorded soon, by record_freed() or, `later`, by
    /// record(): what that takes is brought into the processor's caches meanwhile.
    void prefetch(trace::EventType type, Freed freed = Freed::at_once) const noexcept;

    /// Captures and interns the caller's stack; 0 when stacks are off. Call without any lock held.
    std::uint32_t capture_call_site() noexcept;

    /// The id of `text` (first 64 KiB of it), defined in the recording on first use.
    std::uint32_t string_id(std::string_view text) noexcept;

    /// What the program calls a thread of its own, for the reports. The kernel's names of threads
    /// that record anything are found without.
    void name_thread(std::uint32_t thread, std::string_view name) noexcept;

    /// Times are filled in here, and the thread where it is 0; the rest is the caller's.
    void record(trace::Event event) noexcept;
    /// A free_requested that was complete at once: it and its free_completed, both of one time.
    void record_freed(trace::Event free_requested) noexcept;
    void record(trace::OomEvent event) noexcept;
    void record(trace::DeviceSample sample) noexcept;
    void record(const trace::OptionValue& option) noexcept;
    void record(const trace::DeviceInfo& device) noexcept;
    void record(const trace::ContextInfo& context) noexcept;
    void context_lost(std::uint32_t context) noexcept;

    /// Work that is over, its times on monotonic_ns()'s clock. Work of devices that were not
    /// described is left out: nothing was allocated on them.
    void record_work(const trace::Work* work, std::size_t count) noexcept;
    /// The time is filled in here: that of the finding, not of the allocation.
    void record(trace::Bypass bypass) noexcept;
    void record(trace::Coverage coverage) noexcept;

    /// The calling thread will wait for the device now: what can be done at any time is done.
    /// Whether that was anything.
    bool before_waiting() noexcept;
    /// If it was: how long the thread then waited. Where the device was done by then, less is done
    /// the next time.
    void after_waiting(std::uint64_t waited_ns) noexcept;

    /// Something memlab could not see or serve; `reason` is a sentence for the report.
    void missed(std::string_view reason, std::uint64_t bytes, std::uint64_t count = 1) noexcept;

    /// Runs `look` on the aggregate as it is now. With the recorder's lock held: it must be quick
    /// and call nobody back.
    template <class Look>
    void look_at_aggregate(Look&& look) const {
        look_at(
            [](void* look_object, const trace::Aggregator& aggregate) {
                (*static_cast<std::remove_reference_t<Look>*>(look_object))(aggregate);
            },
            &look);
    }

    /// Ends the recording: later calls are ignored. Closes the log. `exit_code` is End's.
    void finish(trace::EndKind kind, std::int32_t exit_code = trace::End::unknown_code) noexcept;

    /// Ends the log alone, if nobody is at it at this moment. From a signal handler that
    /// interrupted any function of this class, too: waits for nothing and does without the heap.
    void finish_log_only(trace::EndKind kind, std::int32_t exit_code) noexcept;

    /// Waits until nobody is at the recording, for two seconds at most; whoever takes longer does
    /// not run any more. Whether that was so.
    bool comes_free() noexcept;

    /// The aggregate, complete once finish() was called; not to be read before.
    const trace::Aggregator& aggregate() const;

    /// Why the log stopped early, or may lack its end; empty when neither. Call after finish().
    std::string log_problem() const;

    /// The program will unload an object: what the recorder calls into stays loaded. Takes the
    /// loader's lock.
    void before_unload() noexcept;

    /// In a forked child: the recording is the parent's. Nothing may be called afterwards.
    void abandon_after_fork();

  private:
    void look_at(void (*look)(void*, const trace::Aggregator&), void* object) const;
    void fill_in_thread(trace::Event& event) noexcept;

    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace memlab::profiler
