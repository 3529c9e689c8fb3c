#include "interpose/process/session.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <new>
#include <utility>

#include "interpose/control/oom_hold.hpp"
#include "interpose/driver/diagnostics.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/process/annotations.hpp"
#include "interpose/process/backend_choice.hpp"
#include "interpose/process/fork_warning.hpp"
#include "interpose/process/interrupted_heap.hpp"
#include "interpose/process/last_thread.hpp"
#include "interpose/process/output_files.hpp"
#include "interpose/process/process_description.hpp"
#include "interpose/process/report_signals.hpp"
#include "interpose/process/unknown_functions.hpp"
#include "model/framework_caches.hpp"
#include "profiler/known_stacks.hpp"
#include "profiler/thread_id.hpp"
#include "profiler/unwind/unloads.hpp"
#include "threads/mutex.hpp"
#include "threads/no_cancellation.hpp"

namespace memlab::interpose {
namespace {

enum class State : std::uint8_t {
    idle,  // no CUDA yet
    running,
    off,  // disabled or failed to start
};

std::atomic<State> state{State::idle};

// The published session pointer, in memory that is wiped in every forked child. A child made by
// plain clone() runs no fork handler and lacks what the parent's session consists of; it must not
// find the session.
std::atomic<Session*> fallback_instance{nullptr};
std::atomic<std::atomic<Session*>*> instance{&fallback_instance};
Session* started = nullptr;  // the same pointer, for forget_after_fork()

void publish(Session* session) {
    started = session;
    if (instance.load(std::memory_order_relaxed) == &fallback_instance) {
        void* const page = mmap(nullptr, sizeof(std::atomic<Session*>), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED &&
            madvise(page, sizeof(std::atomic<Session*>), MADV_WIPEONFORK) == 0) {
            instance.store(new (page) std::atomic<Session*>(nullptr), std::memory_order_release);
        }
    }
    instance.load(std::memory_order_relaxed)->store(session, std::memory_order_release);
}

constinit threads::Mutex start_lock;  // held while the session starts

std::string last_component(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
}

profiler::python::Mode python_mode(PythonFrames frames) {
    switch (frames) {
        case PythonFrames::off:
            return profiler::python::Mode::off;
        case PythonFrames::verify:
            return profiler::python::Mode::verify;
        case PythonFrames::automatic:
            break;
    }
    return profiler::python::Mode::automatic;
}

std::atomic<std::int32_t> exit_code{trace::End::unknown_code};

// Handlers run in reverse order: a status changed by a handler registered before this one is not
// seen.
void note_exit_code(int status, void* /*unused*/) {
    constexpr int seen_by_parent = 0xff;
    exit_code.store(status & seen_by_parent, std::memory_order_relaxed);
}

// The next two handlers are registered late, so that they run before CUDA's.

/// The trim thread must not call a driver that is shutting down.
void stop_trimmer_at_exit() {
    if (Session* session = Session::current()) {
        session->trimmer().stop();
    }
}

/// NVML's library is unloaded with the process.
void stop_witness_at_exit() {
    if (Session* session = Session::current()) {
        const InsideMemlab inside;
        session->ledger().witness().stop(!inside.nested() && !heap_may_be_interrupted());
    }
}

void unsubscribe_cupti_at_exit() {
    if (Session* session = Session::current()) {
        const InsideMemlab inside;
        // CUPTI needs the heap; and a thread stopped for good inside memlab may hold a lock.
        if (!inside.nested() && !heap_may_be_interrupted() &&
            session->recorder()->wait_until_idle()) {
            session->cupti().finish();
        }
    }
}

void disable_pooling_in(Session& session, const ReasonNotToPool& why) noexcept {
    // What the pool gave out is then kept when it is freed: a fence would end such a capture.
    if (captures_may_be_unseen()) {
        session.captures().assume_one();
    }
    if (!session.pooling()) {
        if (why.of_function && session.recorder() != nullptr) {
            session.recorder()->report_missed(why.text, 0);
        }
        return;
    }
    if (!why.quiet) {
        session.disable_pooling(why.text, trace::Figures::at_least);
        return;
    }
    try {
        session.disable_pooling_quietly(why.text, trace::Figures::at_least);
    } catch (const std::bad_alloc&) {  // no room for the message
    }
}

void disable_pooling_for_unseen(const ReasonNotToPool& why) {
    if (Session* session = Session::current()) {
        disable_pooling_in(*session, why);
    }
}

void report_unfollowed_function(const char* sentence) {
    Session* const session = Session::current();
    if (session != nullptr && captures_may_be_unseen()) {
        session->captures().assume_one();
    }
    if (session != nullptr && session->recorder() != nullptr) {
        session->recorder()->report_missed(sentence, 0);
    }
}

// exit() runs the destructors of loaded objects; quick_exit() only the handlers registered with it.
void at_quick_exit_handler() {
    Session::finish(trace::EndKind::quick_exit);
}

__attribute__((destructor)) void at_exit() {
    Session::finish(trace::EndKind::exit);
}

}  // namespace

[[gnu::hot]] Session* Session::current() {
    return instance.load(std::memory_order_acquire)->load(std::memory_order_acquire);
}

bool Session::may_start() {
    return state.load(std::memory_order_acquire) == State::idle;
}

Session* Session::wait_for_start() {
    const threads::LockGuard lock(start_lock);
    return current();
}

[[gnu::hot]] Session* Session::current_or_late(bool uses_cuda) {
    Session* session = current();
    if (session != nullptr || state.load(std::memory_order_acquire) != State::idle) {
        return session;
    }
    CUcontext context = nullptr;
    const CUresult found = call_real(&Driver::cuCtxGetCurrent, &context);
    if (found == CUDA_ERROR_NOT_INITIALIZED && uses_cuda) {
        driver_not_initialized();
    }
    if (found != CUDA_SUCCESS || context == nullptr) {
        return nullptr;
    }
    start(true);
    return current();
}

void Session::start(bool late) {
    if (state.load(std::memory_order_acquire) != State::idle) {
        return;
    }
    if (Session* session = start_once(late)) {
        session->detect_ipc_users();
        if (session->cupti_.start(*session)) {
            std::atexit(unsubscribe_cupti_at_exit);
        }
    }
}

/// The session if this call started it, else null.
Session* Session::start_once(bool late) {
    const threads::NoCancellation no_cancellation;
    // Before the lock: otherwise a child forked while the lock is held could never take it.
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] {
        pthread_atfork(&Session::before_fork, &Session::after_fork_in_parent,
                       &Session::forget_after_fork);
    });
    const bool segments_needed = segments_are_needed() || mapped_memory_passes_wrapper_by();
    const threads::LockGuard lock(start_lock);
    if (state.load(std::memory_order_relaxed) != State::idle) {
        return nullptr;
    }
    try {
        LoadedSettings loaded = load_settings(environ);
        if (loaded.settings.disabled) {
            state.store(State::off, std::memory_order_release);
            return nullptr;
        }
        set_verbosity(loaded.settings.verbosity);
        for (const std::string& problem : loaded.problems) {
            warn(problem);
        }
        choose_backend(&loaded, segments_needed);
        auto* session = new Session(std::move(loaded), late);
        report_other_nvtx_tool(*session);
        record_early_annotations(*session);
        publish(session);
        set_sentence_handler(report_unfollowed_function);
        if (session->recorder_ &&
            !report_on_signals(session->settings_.report_signals, &Session::report_for_signals)) {
            warn("MEMLAB_REPORT_ON has no effect: no thread could be created");
        }
        session->start_mover();
        session->start_answering();
        state.store(State::running, std::memory_order_release);
        watch_for_last_thread();
        return session;
    } catch (...) {
        state.store(State::off, std::memory_order_release);
        warn("could not start (out of memory); this process runs without memlab");
        return nullptr;
    }
}

Session::Session(LoadedSettings loaded, bool late)
    : Memory(std::move(loaded.settings), late), owner_pid_(getpid()) {
    prepare_fork_warning();
    set_unknown_function_handler(disable_pooling_for_unseen);
    if (settings_.record) {
        const trace::ProcessInfo process = describe_process(late, settings_.arguments);
        PatternValues values;
        values.executable = last_component(process.executable);
        values.pid = std::to_string(process.pid);
        values.host = process.host;
        values.rank = find_rank(process);
        ClaimedFiles claimed;
        if (settings_.files) {
            claimed = claim_files(settings_, values);
            append_to_manifest(settings_, claimed);
        }
        if (!claimed.problem.empty()) {
            warn(claimed.problem);
        }
        report_path_ = claimed.report;
        files_ = {claimed.log, claimed.mode, fallback_report(values)};
        recorder_ = std::make_unique<profiler::Recorder>(
            std::move(claimed.writer),
            profiler::StackLimits{settings_.stack_depth, settings_.max_stacks}, process,
            python_mode(settings_.python));
        for (const auto& [name, value] : loaded.values) {
            recorder_->record(trace::OptionValue{name, value});
        }
        // Switches of frameworks' own caches decide what memlab can see.
        for (const model::FrameworkCache& cache : model::framework_caches()) {
            const char* value =
                cache.switch_name == nullptr ? nullptr : std::getenv(cache.switch_name);
            if (value != nullptr) {
                recorder_->record(trace::OptionValue{cache.switch_name, value});
            }
        }
        if (const char* loading = std::getenv("CUDA_MODULE_LOADING")) {
            recorder_->record(trace::OptionValue{"CUDA_MODULE_LOADING", loading});
        }
        // A replay of PyTorch's cache needs the settings that it had.
        for (const char* const variable : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
            if (const char* const value = std::getenv(variable)) {
                recorder_->record(trace::OptionValue{variable, value});
            }
        }
        at_quick_exit(at_quick_exit_handler);
        on_exit(note_exit_code, nullptr);
    }
    ledger_ = std::make_unique<Ledger>(*this);
    choose_pooling();
    if (!settings_.work_clock || late) {
        work_clock.distrust();
    }
    // A fill runs in another stream than the earlier owner's work.
    if (settings_.one_stream && !settings_.fill.pooled && work_clock.trusted()) {
        one_stream.start_tracking([] {
            if (Session* session = Session::current()) {
                session->contexts().order_second_stream();
            }
        });
    }
    if (limits().wanted() && !limits().applies()) {
        warn(
            "MEMLAB_LIMIT has no effect: it names no device of this process that is larger "
            "than its limit");
    }
    debug("active in process " + std::to_string(owner_pid_) +
          (report_path_.empty() ? std::string() : ", report " + report_path_) +
          (pooling() ? ", pooling" : ", not pooling"));
}

void Session::choose_pooling() {
    if (!settings_.pool) {
        pooling_.store(false, std::memory_order_relaxed);
    }
    if (const ReasonNotToPool* const unseen = reason_not_to_pool_by_unseen_calls()) {
        disable_pooling_in(*this, *unseen);
        return;
    }
    if (!settings_.pool) {
        return;
    }
    const std::string reason = reason_not_to_pool();
    if (!reason.empty()) {
        pooling_.store(false, std::memory_order_relaxed);
        if (recorder_) {
            recorder_->report_limitation(reason, 0);
        }
    }
}

void Session::detect_ipc_users() noexcept {
    IpcUsers::Name name;
    if (!settings_.detect_ipc || !pooling() || !ipc_users_.look(&name)) {
        return;
    }
    try {
        const std::string why =
            std::string(name.data()) +
            " is loaded, which may share device memory with other processes: memory "
            "allocated since was not pooled, so that its handles are exact (MEMLAB_IPC=off "
            "keeps pooling)";
        disable_pooling_quietly(why.c_str());
    } catch (const std::bad_alloc&) {
        disable_pooling("a library that shares device memory is loaded");
    }
}

void Session::context_created(const Ledger::Before& before, Api api, CUcontext context) noexcept {
    if (ledger_->context_created(before, api, context)) {
        std::atexit(stop_witness_at_exit);
    }
}

void Session::on_pool_created() {
    if (trimmer_.start(*this, settings_.pool_options.trim_after_ns)) {
        std::atexit(stop_trimmer_at_exit);
    }
    stop_moving_at_exit();
}

bool Session::others_gave_back(CUdevice device, std::uint64_t bytes) noexcept {
    if (device < 0 && call_real(&Driver::cuCtxGetDevice, &device) != CUDA_SUCCESS) {
        return false;
    }
    return requests_.others_gave_back(device, bytes, limits().limit_for(device));
}

void Session::detect_new_libraries() noexcept {
    detect_ipc_users();
    cupti_.detect_other_profilers();
    cupti_.yield_if_requested();
}

void Session::finish(trace::EndKind kind) {
    Session* session = current();
    if (session == nullptr || session->owner_pid_ != getpid()) {
        return;
    }
    const InsideMemlab inside;
    const threads::NoCancellation no_cancellation;
    const std::int32_t code = kind == trace::EndKind::exit
                                  ? exit_code.load(std::memory_order_relaxed)
                                  : trace::End::unknown_code;
    if (session->mover_) {
        session->mover_->stop();
    }
    session->channel_.stop();
    session->trimmer_.stop();
    session->ledger_->witness().stop(false);
    if (inside.nested() || heap_may_be_interrupted()) {
        // A signal handler ends the process: the interrupted code may hold any lock of memlab's or
        // the heap's. The log is complete; finish_log_only() adds its end record if it can get the
        // lock.
        if (session->recorder_) {
            session->recorder_->finish_log_only(kind, code);
        }
        return;
    }
    session->record_late_frees();
    debug("work clock: " + std::to_string(work_clock.ticks()) + " submissions" +
          (work_clock.trusted() ? "" : ", not trusted"));
    debug(std::string("one stream: ") + one_stream.describe());
    if (!session->recorder_) {
        return;
    }
    // A thread stopped for good inside memlab, for example by a handler that does not return.
    if (!session->recorder_->wait_until_idle()) {
        warn("no report: a stopped thread holds the recording's lock; the event log " +
             session->files_.log + " holds everything: memlab-report reads it");
        return;
    }
    if (const std::uint32_t children = refused_children()) {
        session->recorder_->report_limitation(
            "processes forked from this one after CUDA had started tried to use it, which the "
            "driver refuses: start them with exec (Python: multiprocessing's 'spawn' start "
            "method), or fork before the first CUDA call",
            0, children);
    }
    session->cupti_.finish();
    session->ledger_->record_skipped();
    session->recorder_->finish(kind, code);
    try {
        if (take_final_report()) {
            session->write_final_report(session->recorder_->aggregate(),
                                        session->recorder_->log_problem());
        }
    } catch (...) {
        warn("out of memory while writing " + session->report_path_);
    }
}

void Session::child_starts() noexcept {
    if (Session* session = current()) {
        session->trimmer().child_starts();
    }
}

void Session::before_fork() {
    if (Session* session = current()) {
        session->ledger().witness().before_fork();
        session->channel_.before_fork();
    }
}

void Session::after_fork_in_parent() {
    if (Session* session = current()) {
        session->channel_.after_fork_in_parent();
        session->ledger().witness().after_fork();
    }
    child_starts();
}

// CUDA does not survive a fork, and the files are the parent's. Locks held by the parent's other
// threads stay locked, so none of its objects are used again.
void Session::forget_after_fork() {
    start_lock.reset_after_fork();
    profiler::reset_thread_id();
    forget_threads_after_fork();
    profiler::cupti::Subscriber::forget_after_fork();
    profiler::unwind::reset_unloads_after_fork();
    profiler::KnownStacks::reset_after_fork();
    forget_inside_after_fork();
    forget_annotations_after_fork();
    forget_report_signals_after_fork();
    one_stream.forget_after_fork();
    oom_hold().forget_after_fork();
    forget_moving_after_fork();
    Session* const parents = std::exchange(started, nullptr);
    instance.load(std::memory_order_relaxed)->store(nullptr, std::memory_order_relaxed);
    note_fork(parents != nullptr);
    if (parents != nullptr) {
        parents->channel_.close_after_fork();
        parents->ledger_->witness().after_fork();
        if (parents->recorder_) {
            parents->recorder_->abandon_after_fork();
        }
    }
    state.store(State::idle, std::memory_order_release);
}

}  // namespace memlab::interpose
