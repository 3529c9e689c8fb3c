// memlab at work in one process: settings, recording, contexts and memory, wired together.
//
// Life: nothing exists until the first successful cuInit (or, when memlab came late, the first use
// of an existing context). At exit() and quick_exit() the report is written; any other end leaves
// the event log, which says as much. Never destroyed: threads may outlive main, and CUDA may be
// gone by then, so the end neither frees nor calls the driver. A forked child starts from nothing.
#pragma once

#include <memory>
#include <string>

#include "interpose/capture_gate.hpp"
#include "interpose/context_registry.hpp"
#include "interpose/cupti_use.hpp"
#include "interpose/driver.hpp"
#include "interpose/ipc_users.hpp"
#include "interpose/live_allocations.hpp"
#include "interpose/memory_limit.hpp"
#include "interpose/options/option_table.hpp"
#include "interpose/segment_index.hpp"
#include "interpose/trim_thread.hpp"
#include "profiler/recorder.hpp"

namespace memlab::interpose {

/// Where this process writes.
struct OutputFiles {
    std::string report;           ///< empty: nowhere
    std::string log;              ///< empty: nowhere
    unsigned mode = 0;            ///< who may read them, less the umask
    std::string fallback_report;  ///< where the report goes when it cannot be written
};

class Session {
  public:
    /// The running session, or null.
    static Session* current();

    /// The running session; starts one when the calling thread has a current context although no
    /// cuInit was seen (memlab was loaded late). Null when memlab is not at work.
    static Session* current_or_late();

    /// Starts the session unless there is one. Called after a successful cuInit.
    static void start(bool late);

    /// True while there may be a session one day, and is none yet.
    static bool may_start();

    /// The session when a start that is under way has ended. Call without any lock of ours.
    static Session* wait_for_start();

    /// Writes the report. Called once, at the end of the process. Where that is in a signal handler
    /// that interrupted memlab or the heap, and where a thread has stopped for good inside memlab,
    /// there is no report and the event log is what remains: the end of a process waits for nobody.
    static void finish(trace::EndKind kind);

    const Settings& settings() const { return settings_; }

    /// Null when MEMLAB_RECORD=off.
    profiler::Recorder* recorder() { return recorder_.get(); }

    ContextRegistry& contexts() { return contexts_; }
    CaptureGate& captures() { return captures_; }
    SegmentIndex& segments() { return segments_; }
    MemoryLimits& limits() { return limits_; }
    LiveAllocations& live() { return live_; }
    TrimThread& trimmer() { return trimmer_; }
    CuptiSeat& cupti() { return cupti_; }

    /// True when CUDA was in use before memlab saw it.
    bool started_late() const { return started_late_; }

    /// Where the report will be; empty: nowhere.
    const std::string& report_path() const { return files_.report; }

    /// False once pooling is off for new memory: by option, under a sanitizer or debugger, or
    /// because something inside memlab failed.
    bool pooling() const { return pooling_.load(std::memory_order_relaxed); }

    /// Turns pooling off for new memory and says so once; what is pooled is still served.
    void step_aside(const char* why) noexcept;

    /// Turns pooling off for new memory because the program needs plain allocations from here on;
    /// the report says so.
    void stop_pooling_quietly(const char* why);

    /// Stops pooling when a library that exports the program's memory has been loaded. Takes the
    /// lock of the loader's list, which it does not hold while constructors run: call without any
    /// of ours.
    void look_for_ipc_users() noexcept;
    /// A pool has taken memory from the driver: it is time to look again. From under a pool's lock.
    void note_growth() { grown_.store(true, std::memory_order_relaxed); }
    /// Looks when a pool has grown since the last time.
    void look_after_growth() {
        if (grown_.load(std::memory_order_relaxed)) {
            grown_.store(false, std::memory_order_relaxed);
            look_for_ipc_users();
            cupti_.look_for_others();
        }
        cupti_.leave_if_wanted();
    }

    /// The recording's id of the name of the function that the calling thread is in: the runtime's
    /// where CUPTI tells, else the driver's, `api`. 0 when nothing is recorded.
    std::uint32_t api_id(Api api);

  private:
    Session(LoadedSettings loaded, bool late);
    static Session* start_once(bool late);
    void choose_pooling();
    void leave_report();

    static void forget_after_fork();

    Settings settings_;
    OutputFiles files_;
    int owner_pid_;
    bool started_late_;
    std::unique_ptr<profiler::Recorder> recorder_;
    std::atomic<bool> pooling_{true};
    std::atomic<std::uint32_t> api_ids_[static_cast<std::size_t>(Api::count)] = {};
    std::atomic<bool> grown_{false};
    IpcUsers ipc_users_;
    MemoryLimits limits_;
    SegmentIndex segments_;
    LiveAllocations live_;
    CaptureGate captures_;
    ContextRegistry contexts_;
    TrimThread trimmer_;
    CuptiSeat cupti_;
};

}  // namespace memlab::interpose
