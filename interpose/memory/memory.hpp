// The device memory of one process: its contexts and their pools, what is allocated, the limits,
// and whether new memory is pooled. What else the process does about its memory is Session's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "interpose/driver/capture_gate.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/memory/context_registry.hpp"
#include "interpose/memory/live_allocations.hpp"
#include "interpose/memory/memory_limit.hpp"
#include "interpose/memory/segment_index.hpp"
#include "interpose/options/settings.hpp"
#include "profiler/cupti/audit.hpp"
#include "profiler/recorder.hpp"

namespace memlab::interpose {

/// Thread-safety: all public functions, from any thread.
class Memory {
  public:
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    const Settings& settings() const { return settings_; }

    /// Null when MEMLAB_RECORD=off.
    profiler::Recorder* recorder() { return recorder_.get(); }

    ContextRegistry& contexts() { return contexts_; }
    CaptureGate& captures() { return captures_; }
    SegmentIndex& segments() { return segments_; }
    MemoryLimits& limits() { return limits_; }
    LiveAllocations& live() { return live_; }

    /// True when CUDA was in use before memlab saw it.
    bool started_late() const { return started_late_; }

    /// Where the report will be; empty: nowhere.
    const std::string& report_path() const { return report_path_; }

    /// False once pooling is off for new memory: by option, under a sanitizer or debugger, or
    /// because something inside memlab failed.
    bool pooling() const { return pooling_.load(std::memory_order_relaxed); }

    /// Turns pooling off for new memory and says so once; what is pooled is still served.
    void disable_pooling(const char* why) noexcept;

    /// Turns pooling off for new memory because the program needs plain allocations from here on;
    /// the report says so.
    void disable_pooling_quietly(const char* why);

    /// The recording's id of the name of the function that the calling thread is in: the runtime's
    /// where CUPTI tells, else the driver's, `api`. 0 when nothing is recorded.
    std::uint32_t api_id(Api api);

    /// An allocation that memlab made or recorded has this address: CUPTI's audit will find its
    /// record.
    void made(std::uint64_t address) noexcept {
        if (profiler::cupti::Audit* audit = audit_.load(std::memory_order_acquire)) {
            audit->made(address);
        }
    }

    /// Where made() tells of addresses from now on; null: nowhere. It must live for ever.
    void audit_with(profiler::cupti::Audit* audit) {
        audit_.store(audit, std::memory_order_release);
    }

    /// A pool has taken memory from the driver, or another reason to look_around(). From under any
    /// lock.
    void report_growth() { attention_.store(true, std::memory_order_relaxed); }

    /// Looks around where that was noted since the last time. Call without any lock of ours.
    void on_memory_growth() {
        if (attention_.load(std::memory_order_relaxed)) {
            attention_.store(false, std::memory_order_relaxed);
            look_around();
        }
    }

    /// A context has got its pool. Called with the lock of the registry.
    virtual void on_pool_created() = 0;

  protected:
    Memory(Settings settings, bool late);
    ~Memory() = default;

    /// What the process does once its memory has grown.
    virtual void look_around() noexcept = 0;

    const Settings settings_;
    std::string report_path_;
    std::unique_ptr<profiler::Recorder> recorder_;
    std::atomic<bool> pooling_{true};

  private:
    std::atomic<profiler::cupti::Audit*> audit_{nullptr};
    const bool started_late_;
    std::atomic<bool> attention_{false};
    std::atomic<std::uint32_t> api_ids_[static_cast<std::size_t>(Api::count)] = {};
    MemoryLimits limits_;
    SegmentIndex segments_;
    LiveAllocations live_;
    CaptureGate captures_;
    ContextRegistry contexts_;
};

}  // namespace memlab::interpose
