// Samples of what others than CUDA say of a GPU's memory: NVML of the processes on it, which are
// the only figures of other processes and a second source for this one's, and of the limit of this
// process's cgroup; the kernel of that, too (cgroup.hpp).
//
// NVML is loaded and queried in a thread of memlab's own (nvmlInit takes 9 ms, a query 0.4 ms),
// 0.3 s after the first context was made, so that no short program ever loads it; then after one
// second, ten, and every sixty, when an allocation failed, and once more at the end. Where it is
// missing or does not know the GPU, that is recorded. Instances of MIG have other UUIDs: NVML is
// asked nothing of them.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/ledger/cgroup.hpp"
#include "profiler/recorder.hpp"
#include "threads/mutex.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class NvmlWitness {
  public:
    static constexpr int max_devices = trace::DeviceInfo::max_gpus;

    explicit NvmlWitness(profiler::Recorder* recorder) : recorder_(recorder) {}
    NvmlWitness(const NvmlWitness&) = delete;
    NvmlWitness& operator=(const NvmlWitness&) = delete;

    /// A context of a described device was made: asks about it from now on. True when that created
    /// the thread: call stop() at exit.
    /// `pci`: its address.
    bool watch(CUdevice device, std::string uuid, std::string pci);

    /// The limit of this process's cgroup on a device when NVML was asked last; none: it was not,
    /// or it does not know one. May throw std::bad_alloc.
    std::optional<CgroupLimit> limit_by_nvml(CUdevice device);

    /// Asks soon, in its own thread, though not twice in a second. Waits for nothing.
    void ask_soon() noexcept;

    /// Call at process end: no call of NVML begins after this. Waits for one under way, but at most
    /// a second. Asks a last time if `ask_again` and if NVML was asked before: not from a signal
    /// handler, whose thread may hold locks that NVML needs.
    void stop(bool ask_again);

    /// Call before a fork: waits for a call of NVML under way, but at most a fifth of a second, and
    /// lets none begin until after_fork(), so that a child which uses NVML itself finds none of its
    /// locks taken. Call both in the forking thread, after_fork() in the child as well.
    void before_fork() MEMLAB_UNCHECKED_LOCKS;
    void after_fork() MEMLAB_UNCHECKED_LOCKS;

  private:
    struct Nvml;
    enum class State : std::uint8_t {
        running,
        last,  ///< is to be asked once more
        stopped,
    };

    static void* run(void* self);
    void loop();
    void pause(std::size_t round);
    bool ask_next(Nvml& nvml, std::size_t round);
    bool ask(Nvml& nvml);

    profiler::Recorder* const recorder_;
    std::uint64_t asked_ns_ = 0;  ///< when NVML was asked last; its thread's alone
    std::atomic<bool> started_{false};
    std::atomic<State> state_{State::running};
    std::atomic<std::uint32_t> wake_{0};   ///< a futex
    std::atomic<bool> asked_for_{false};   ///< ask_soon() was called, and not answered
    std::atomic<std::uint32_t> ended_{0};  ///< a futex: 1 when the thread calls nothing any more
    threads::Mutex mutex_;                 ///< held while NVML is asked
    std::atomic<pthread_t> forking_{};     ///< the thread that holds it to fork
    struct Watched {
        std::string uuid;  ///< empty: not watched
        std::string pci;
        std::optional<CgroupLimit> limit;  ///< by NVML
    };
    threads::Mutex watched_mutex_;
    std::array<Watched, max_devices> watched_ MEMLAB_GUARDED_BY(watched_mutex_);
};

/// A limit as it is recorded. `recorder` may be null: then the cgroup has no name. May throw
/// std::bad_alloc.
trace::GroupLimit figures_of(const CgroupLimit& limit, profiler::Recorder* recorder);

/// The process id of this process in the initial namespace, whose ids NVML has; 0: not known.
std::uint32_t pid_of_the_host();

}  // namespace memlab::interpose
