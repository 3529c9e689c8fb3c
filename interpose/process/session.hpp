// The session: memlab in one process. Wires settings, recording, contexts and memory together.
//
// Created at the first successful cuInit (or, when memlab was loaded late, at the first use of an
// existing context). At exit() and quick_exit() the report is written; any other end leaves only
// the event log, without an end record. Never destroyed: threads may outlive main, and CUDA may be
// gone by then, so the end neither frees nor calls the driver. A forked child starts from scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "interpose/control/control_channel.hpp"
#include "interpose/ledger/ledger.hpp"
#include "interpose/memory/memory.hpp"
#include "interpose/moving/mover.hpp"
#include "interpose/options/option_table.hpp"
#include "interpose/process/cupti_subscription.hpp"
#include "interpose/process/ipc_users.hpp"
#include "interpose/process/trim_thread.hpp"
#include "interpose/sharing/memory_requests.hpp"

namespace memlab::interpose {

/// Output files of this process besides report_path().
struct OutputFiles {
    std::string log;              ///< empty: none
    unsigned mode = 0;            ///< permissions, before the umask
    std::string fallback_report;  ///< used when the report cannot be written to its path
};

class Session final : public Memory {
  public:
    /// The running session, or null.
    static Session* current();

    /// The running session; starts one if the calling thread has a current context although no
    /// cuInit was seen (memlab was loaded late). Null when memlab is not active. A forked child in
    /// which CUDA does not work is warned of if it `uses_cuda` by this call: an annotation does
    /// not.
    static Session* current_or_late(bool uses_cuda = true);

    /// Starts the session unless there is one. Call after a successful cuInit.
    static void start(bool late);

    /// True while no session has started but one may.
    static bool may_start();

    /// Waits for a start that is under way; returns the session. Call without any of memlab's
    /// locks.
    static Session* wait_for_start();

    /// Writes the report. Call once, at the end of the process. No report is written, and the event
    /// log remains, in a signal handler that interrupted memlab or the heap, and when a thread has
    /// stopped for good inside memlab: the end of a process must not block.
    static void finish(trace::EndKind kind);

    /// The process starts a child, which may need memory. Async-signal-safe.
    static void child_starts() noexcept;

    /// Writes the report of this moment beside the final one, as report.NAME.json, or to the path
    /// `name` if it has a slash; an earlier one of that name is replaced. Recording goes on. Waits
    /// for the recorder's locks until they were held for `max_wait_ns`. Returns empty, or a
    /// sentence that says what failed. May throw std::bad_alloc.
    /// *written: its path.
    std::string write_snapshot(std::string_view name, std::uint64_t max_wait_ns,
                               std::string* written = nullptr);

    /// Path of the event log; empty: none.
    const std::string& log_path() const { return files_.log; }

    TrimThread& trimmer() { return trimmer_; }
    MemoryRequests& requests() { return requests_; }
    bool others_gave_back(CUdevice device, std::uint64_t bytes) noexcept override;
    GroupLimit group_limit(CUdevice device) override { return ledger_->group_limit(device); }
    void ask_for_others() noexcept override { ledger_->witness().ask_soon(); }
    CuptiSubscription& cupti() { return cupti_; }
    /// Null: the process cannot step aside (MEMLAB_YIELD).
    Mover* mover() { return mover_.get(); }
    Ledger& ledger() { return *ledger_; }
    /// Ledger::context_created(), and what is then to be done at exit.
    void context_created(const Ledger::Before& before, Api api, CUcontext context) noexcept;

    /// Stops pooling when a library that exports the program's memory has been loaded. Takes the
    /// lock of the loader's list, which is not held while constructors run: call without any of
    /// memlab's.
    void detect_ipc_users() noexcept;

  private:
    Session(LoadedSettings loaded, bool late);
    ~Session() = default;

    void on_pool_created() override;
    void detect_new_libraries() noexcept override;

    static Session* start_once(bool late);
    void start_answering();
    static void stop_answering();
    void start_mover();
    void stop_moving_at_exit();
    /// What was freed where it could not be recorded.
    void record_late_frees();
    static void forget_moving_after_fork();
    void choose_pooling();
    void write_final_report(const trace::Aggregator& aggregate, const std::string& log_problem);

    /// Writes the final report while the process is about to die of a signal: its recording has no
    /// end.
    void write_report_before_death(std::uint64_t max_wait_ns) noexcept;
    /// For report_on_signals().
    static void report_for_signals(std::uint64_t signals);

    // Handlers of pthread_atfork().
    static void before_fork();
    static void after_fork_in_parent();
    static void forget_after_fork();

    OutputFiles files_;
    int owner_pid_;
    IpcUsers ipc_users_;
    MemoryRequests requests_;
    TrimThread trimmer_{requests_};
    CuptiSubscription cupti_;
    ControlChannel channel_;
    std::unique_ptr<Ledger> ledger_;  ///< made when the recorder is there
    std::unique_ptr<Mover> mover_;
};

}  // namespace memlab::interpose
