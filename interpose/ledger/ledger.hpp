// The ledger's measurements: the device's used memory before and after a call that takes memory
// without a size in its arguments (contexts, code, graphs, streams), recorded where they differ.
//
// The driver's answer takes 5 us on an idle GPU, 95 us beside a running kernel, and blocks other
// threads' launches meanwhile. So the time spent is limited (measuring_budget.hpp), unless
// MEMLAB_LEDGER=on, and what is beyond is counted as not measured. Contexts are always measured:
// they take most, and creating one takes a thousand times as long. So is a function's first launch
// where its module is new to the context, or the function has local memory: that is what can take
// GiB.
//
// Nothing is measured while a stream captures. A device on which the process has no context cannot
// be queried: its figure is then 0, which means unknown.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "interpose/ledger/cgroup.hpp"
#include "interpose/ledger/code_files.hpp"
#include "interpose/ledger/launched.hpp"
#include "interpose/ledger/loaded_code.hpp"
#include "interpose/ledger/measuring_budget.hpp"
#include "interpose/ledger/nccl_witness.hpp"
#include "interpose/ledger/nvml_witness.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/memory.hpp"
#include "threads/mutex.hpp"
#include "trace/ledger_entry.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread. Call without any of memlab's locks. Nothing here
/// throws.
class Ledger {
  public:
    struct Call {
        trace::LedgerKind kind = trace::LedgerKind::other;
        bool returns = false;            ///< gives memory back: not one that may take some
        CUdevice device = -1;            ///< below 0: the current context's
        const void* launched = nullptr;  ///< the function of a first launch
    };
    /// What was measured before a call.
    struct Before {
        bool measures = false;
        Call call = {};           ///< `device`: as it was found
        std::uint64_t used = 0;   ///< 0: unknown
        std::uint64_t pools = 0;  ///< of graphs: what the driver's pools had reserved
        std::uint64_t changes = 0;
        std::uint64_t measurements = 0;
    };

    explicit Ledger(Memory& memory);

    bool enabled() const { return enabled_; }

    /// Call before a call that may take memory or gives some back.
    Before before(const Call& call) noexcept;

    /// After it succeeded. `object`: string id of the file that code came from; 0: none.
    void after(const Before& before, Api api, std::uint32_t object = 0) noexcept;

    /// `context` was created by the call; it need not be current. True when that created a thread:
    /// call witness().stop() at exit.
    bool context_created(const Before& before, Api api, CUcontext context) noexcept;
    /// It was destroyed or reset. Unknown contexts are ignored.
    void context_ended(Api api, CUcontext context) noexcept;

    /// Samples the current context's device where that is due: what was loaded or grew since the
    /// last sample shows.
    void sample_if_due() noexcept;

    /// Memory::group_limit(). Known without a recorder, too, except what NVML says.
    Memory::GroupLimit group_limit(CUdevice device);

    /// Records how many calls were not measured. At the end of the process.
    void record_skipped() noexcept;

    /// The key by which `launched` knows a function or an executable graph.
    Launched::Key launch_key(trace::LedgerKind kind, const void* handle) const;

    /// A module or library will be unloaded.
    void unloads(const void* handle) noexcept;

    CodeFiles& code() { return code_; }
    LoadedCode& loaded_code() { return loaded_code_; }
    NvmlWitness& witness() { return witness_; }
    NcclWitness& nccl() { return nccl_; }

  private:
    static constexpr int max_devices = trace::DeviceInfo::max_gpus;

    bool may_measure(const Call& call, std::uint64_t now_ns);
    bool is_new_code(const void* function);
    void describe(CUdevice device);
    CUcontext any_context(CUdevice device);
    void record(const Before& before, Api api, std::uint32_t object, CUcontext context,
                const UsedMemory& now);

    struct KnownContext {
        CUcontext handle;
        CUdevice device;
    };

    Memory& memory_;
    const bool enabled_;
    MeasuringBudget budget_;
    std::array<std::atomic<bool>, max_devices> described_{};
    threads::Mutex mutex_;
    std::vector<KnownContext> contexts_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<bool> several_contexts_{false};
    std::atomic<std::uint64_t> measurements_{0};  ///< how often one began or ended
    CodeFiles code_;
    LoadedCode loaded_code_;
    NvmlWitness witness_;
    NcclWitness nccl_;
};

}  // namespace memlab::interpose
