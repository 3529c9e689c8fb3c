// memlab at work in one process: settings, recording, contexts and memory, wired together.
//
// Life: nothing exists until the first successful cuInit (or, when memlab came late, the first use
// of an existing context). At exit() and quick_exit() the report is written; any other end leaves
// the event log, which says as much. Never destroyed: threads may outlive main, and CUDA may be
// gone by then, so the end neither frees nor calls the driver. A forked child starts from nothing.
#pragma once

#include <string>

#include "interpose/memory/memory.hpp"
#include "interpose/options/option_table.hpp"
#include "interpose/process/cupti_subscription.hpp"
#include "interpose/process/ipc_users.hpp"
#include "interpose/process/trim_thread.hpp"

namespace memlab::interpose {

/// Where this process writes, besides report_path().
struct OutputFiles {
    std::string log;              ///< empty: nowhere
    unsigned mode = 0;            ///< who may read them, less the umask
    std::string fallback_report;  ///< where the report goes when it cannot be written
};

class Session final : public Memory {
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

    TrimThread& trimmer() { return trimmer_; }
    CuptiSubscription& cupti() { return cupti_; }

    /// Stops pooling when a library that exports the program's memory has been loaded. Takes the
    /// lock of the loader's list, which it does not hold while constructors run: call without any
    /// of ours.
    void look_for_ipc_users() noexcept;

  private:
    Session(LoadedSettings loaded, bool late);
    ~Session() = default;

    void on_pool_created() override;
    void look_around() noexcept override;

    static Session* start_once(bool late);
    void choose_pooling();
    void leave_report();

    static void forget_after_fork();

    OutputFiles files_;
    int owner_pid_;
    IpcUsers ipc_users_;
    TrimThread trimmer_;
    CuptiSubscription cupti_;
};

}  // namespace memlab::interpose
