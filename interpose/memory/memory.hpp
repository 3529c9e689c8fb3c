// The device memory of one process: contexts and their pools, live allocations, limits, and whether
// new memory is pooled. Other duties of the process are Session's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "interpose/driver/capture_gate.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/function_ref.hpp"
#include "interpose/memory/context_registry.hpp"
#include "interpose/memory/live_allocations.hpp"
#include "interpose/memory/memory_limit.hpp"
#include "interpose/memory/segment_index.hpp"
#include "interpose/memory/suballocators.hpp"
#include "interpose/options/pytorch_doors.hpp"
#include "interpose/options/settings.hpp"
#include "profiler/cupti/audit.hpp"
#include "profiler/recorder.hpp"
#include "trace/event.hpp"

namespace memlab::interpose {

/// Thread-safety: all public functions, from any thread.
class Memory {
  public:
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    const Settings& settings() const { return settings_; }

    /// Null when MEMLAB_RECORD=off.
    profiler::Recorder* recorder() { return recorder_.get(); }
    bool has_recorder() const { return recorder_ != nullptr; }

    ContextRegistry& contexts() { return contexts_; }
    CaptureGate& captures() { return captures_; }
    SegmentIndex& segments() { return segments_; }
    MemoryLimits& limits() { return limits_; }
    LiveAllocations& live() { return live_; }
    Suballocators& suballocators() { return suballocators_; }

    /// True when CUDA was in use before memlab was loaded.
    bool started_late() const { return started_late_; }

    /// Path of the report; empty: none.
    const std::string& report_path() const { return report_path_; }

    /// False once pooling is off for new memory: by option, under a sanitizer or debugger, or after
    /// an internal failure.
    bool pooling() const { return pooling_.load(std::memory_order_relaxed); }

    /// Whether the calling thread allocates for a cache of the program's whose blocks are recorded.
    bool serves_recorded_cache();

    /// The calling thread allocated such memory for that, PyTorch's: the recording's string id of
    /// its name. Call without any of memlab's locks.
    std::uint32_t segment_of_pytorch(trace::MemoryKind kind);
    /// Of PyTorch's cache a block was reported, whatever of it is believed.
    void pytorch_reported() { pytorch_reported_.store(true, std::memory_order_relaxed); }

    /// This is not read of PyTorch, whose library's file name begins so; said once in the report.
    /// Takes the lock of the loader's list: call without any of memlab's locks.
    void pytorch_not_read(PytorchFeature feature, const char* library, const char* why) noexcept;
    /// Whether that was said.
    bool leaves_out(PytorchFeature feature) const {
        return (pytorch_left_out_.load(std::memory_order_relaxed) &
                1U << static_cast<unsigned>(feature)) != 0;
    }

    /// Turns pooling off for new memory and warns once; pooled memory is still served.
    void disable_pooling(const char* why,
                         trace::Figures figures = trace::Figures::complete) noexcept;

    /// Turns pooling off for new memory because the program needs plain allocations from now on;
    /// noted in the report only.
    void disable_pooling_quietly(const char* why,
                                 trace::Figures figures = trace::Figures::complete);

    /// An allocation is not pooled because its caller may export it; the report says so once.
    void report_exporting_code() noexcept;

    /// The recording's string id of the API function that the calling thread is in: the runtime's
    /// function if CUPTI reports it, else the driver's, `api`. 0 when nothing is recorded.
    std::uint32_t api_id(Api api);

    /// memlab made or recorded an allocation at this address: CUPTI's audit matches its record with
    /// it.
    void made(std::uint64_t address) noexcept {
        if (profiler::cupti::Audit* audit = audit_.load(std::memory_order_acquire)) {
            audit->add_known(address);
        }
    }

    /// The audit that made() reports to; null: none. It must never be destroyed.
    void audit_with(profiler::cupti::Audit* audit) {
        audit_.store(audit, std::memory_order_release);
    }

    /// Requests a call of detect_new_libraries(): a pool has grown, or there is another reason. May
    /// be called under any lock.
    void report_growth() {
        growth_pending_.store(true, std::memory_order_relaxed);
        on_unused();
    }

    /// Call after memory of a pool may have become unused, or a free pending: wakes the thread that
    /// gives it back, if it sleeps. Otherwise one load. May be called under any lock.
    void on_unused() noexcept {
        if (trimmer_sleeps_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
            wake_trimmer();
        }
    }

    /// For that thread: returns after the next on_unused(), or when `awaited` is true. Nothing is
    /// missed if that looks into the pools, under their locks: what a pool had freed by then it
    /// sees, and who frees later sees that the thread sleeps.
    void sleep_until_unused(FunctionRef<bool()> awaited);

    /// Call when the driver has no memory of the device (-1: the current context's) for a request
    /// of `bytes` (0: unknown) and this process has given back what it can: other processes under
    /// memlab are asked to. Waits for them, half a second at most. True: try once more.
    virtual bool others_gave_back(CUdevice device, std::uint64_t bytes) noexcept = 0;

    /// What stands in a record of a cgroup's limit, and the cgroup as text.
    struct GroupLimit {
        std::string group;
        trace::GroupLimit figures;
        trace::LimitSource source = trace::LimitSource::none;
    };
    /// The limit of this process's cgroup, or of one above it, that leaves least room on a device;
    /// without a source: none is known. Reads files. May throw std::bad_alloc.
    virtual GroupLimit group_limit(CUdevice device) = 0;

    /// Call when an allocation has failed for lack of memory and is recorded: a thread of memlab's
    /// own then asks who else holds memory. Waits for nothing.
    virtual void ask_for_others() noexcept = 0;

    /// Calls detect_new_libraries() if that was requested. Call without any of memlab's locks.
    void on_memory_growth() {
        if (growth_pending_.load(std::memory_order_relaxed)) {
            growth_pending_.store(false, std::memory_order_relaxed);
            detect_new_libraries();
        }
    }

    /// While one exists the process takes memory from the driver or gives some back. Counts only
    /// where that is recorded.
    class Changing {
      public:
        explicit Changing(Memory& memory) : memory_(memory) { count(); }
        ~Changing() { count(); }
        Changing(const Changing&) = delete;
        Changing& operator=(const Changing&) = delete;

      private:
        void count() {
            if (memory_.has_recorder()) {
                memory_.changes_.fetch_add(1, std::memory_order_relaxed);
            }
        }
        Memory& memory_;
    };
    /// Another number when anything of that began or ended meanwhile.
    std::uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }

    /// A context's pool was created. Called with the registry's lock held.
    virtual void on_pool_created() = 0;

  protected:
    Memory(Settings settings, bool late);
    ~Memory() = default;

    /// Reacts to libraries that were loaded since the last call.
    virtual void detect_new_libraries() noexcept = 0;

    const Settings settings_;
    std::string report_path_;
    std::unique_ptr<profiler::Recorder> recorder_;
    std::atomic<bool> pooling_{true};

  private:
    std::atomic<profiler::cupti::Audit*> audit_{nullptr};
    const bool started_late_;
    void wake_trimmer() noexcept;

    std::atomic<std::uint32_t> trimmer_sleeps_{0};  ///< a futex
    std::atomic<bool> growth_pending_{false};
    std::atomic<bool> exporting_code_{false};
    std::atomic<bool> pytorch_reported_{false};
    std::atomic<std::uint32_t> pytorch_segments_{0};
    std::atomic<std::uint32_t> pytorch_left_out_{0};  ///< a bit for each PytorchFeature
    std::atomic<std::uint64_t> changes_{0};
    std::atomic<std::uint32_t> api_ids_[static_cast<std::size_t>(Api::count)] = {};
    MemoryLimits limits_;
    SegmentIndex segments_;
    LiveAllocations live_;
    Suballocators suballocators_;
    CaptureGate captures_;
    ContextRegistry contexts_;
};

}  // namespace memlab::interpose
