#include "interpose/ledger/ledger.hpp"

#include <algorithm>
#include <new>

#include "interpose/driver/async_pools.hpp"
#include "interpose/driver/current_context.hpp"
#include "profiler/clock.hpp"
#include "threads/no_cancellation.hpp"

namespace memlab::interpose {
namespace {

using trace::LedgerKind;

/// Spends the time of its own life.
class Spending {
  public:
    Spending(MeasuringBudget& budget, LedgerKind kind)
        : budget_(budget), kind_(kind), begin_ns_(profiler::monotonic_ns()) {}
    ~Spending() { budget_.spend(kind_, profiler::monotonic_ns() - begin_ns_); }
    Spending(const Spending&) = delete;
    Spending& operator=(const Spending&) = delete;

    std::uint64_t begin_ns() const { return begin_ns_; }

  private:
    MeasuringBudget& budget_;
    const LedgerKind kind_;
    const std::uint64_t begin_ns_;
};

/// Whether the threads of a function or kernel have local memory. Where code is loaded lazily this
/// may load it.
bool has_local_memory(const void* launched, bool is_function, CUdevice device) {
    constexpr CUfunction_attribute asked = CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
    void* const handle = const_cast<void*>(launched);
    int bytes = 0;
    const bool told =
        !is_function && call_real(&Driver::cuKernelGetAttribute, &bytes, asked,
                                  static_cast<CUkernel>(handle), device) == CUDA_SUCCESS;
    return (told || call_real(&Driver::cuFuncGetAttribute, &bytes, asked,
                              static_cast<CUfunction>(handle)) == CUDA_SUCCESS) &&
           bytes != 0;
}

}  // namespace

constinit Launched launched;

Ledger::Ledger(Memory& memory)
    : memory_(memory),
      enabled_(memory.has_recorder() && memory.settings().ledger != LedgerUse::off),
      budget_(profiler::monotonic_ns()),
      code_(memory.recorder()),
      witness_(memory.recorder()),
      nccl_(memory, budget_, enabled_) {}

bool Ledger::may_measure(const Call& call, std::uint64_t now_ns) {
    const bool is_new = call.launched != nullptr && is_new_code(call.launched);
    return is_new || call.kind == LedgerKind::context ||
           memory_.settings().ledger == LedgerUse::on ||
           budget_.allows(call.kind, now_ns,
                          [] { return profiler::clock_ns(CLOCK_PROCESS_CPUTIME_ID); }) ||
           (call.launched != nullptr &&
            has_local_memory(call.launched, code_.is_function(call.launched), call.device));
}

/// True the first time that something of its module is launched in the current context.
bool Ledger::is_new_code(const void* function) {
    const void* const code = code_.code_of(function);
    const std::uint64_t tag = loaded_code_.tag(code, current_context());
    if (code == nullptr || loaded_code_.contains(tag)) {
        return false;
    }
    loaded_code_.insert(tag);
    return true;
}

Launched::Key Ledger::launch_key(LedgerKind kind, const void* handle) const {
    // A kernel of a library is the same handle in each context; an executable graph is of one.
    return kind == LedgerKind::launch && several_contexts_.load(std::memory_order_relaxed)
               ? Launched::key(handle, current_context())
               : Launched::key(handle);
}

void Ledger::unloads(const void* handle) noexcept {
    code_.unloaded(handle);
    loaded_code_.clear();
    launched.clear();
}

/// A context of the device in which it can be queried; null: none.
CUcontext Ledger::any_context(CUdevice device) {
    const std::vector<Context*> registered = memory_.contexts().all(device);
    return registered.empty() ? memory_.contexts().primary_of(device)
                              : registered.front()->handle();
}

Ledger::Before Ledger::before(const Call& call) noexcept {
    Before before;
    before.call = call;
    if (!enabled_) {
        return before;
    }
    const bool current = call.device < 0;
    const CUdevice device = current ? current_device() : call.device;
    before.call.device = device;
    if (device < 0 || device >= max_devices) {
        return before;
    }
    const threads::NoCancellation no_cancellation;
    const Spending spending(budget_, call.kind);
    if (!may_measure(before.call, spending.begin_ns())) {
        count_unrecorded(device, call.kind,
                         call.returns ? CallWas::skipped_return : CallWas::skipped);
        return before;
    }
    try {
        before.changes = memory_.changes();
        before.measurements = measurements_.fetch_add(1, std::memory_order_relaxed) + 1;
        std::optional<UsedMemory> used;
        if (current) {
            used = used_memory(memory_);
        } else if (const CUcontext asked = any_context(device)) {
            const CurrentContext guard(asked);
            used = used_memory(memory_);
        }
        before.used = used ? used->used : 0;
        // The memory of the graph's nodes counts as the driver's pools'.
        before.pools = used && call.kind == LedgerKind::graph ? reserved_by_pools(device) : 0;
        // The creation of a context counts even where there was none in which to query.
        before.measures = used.has_value() || call.kind == LedgerKind::context;
    } catch (const std::bad_alloc&) {  // not measured
    }
    return before;
}

void Ledger::describe(CUdevice device) {
    std::atomic<bool>& described = described_[static_cast<std::size_t>(device)];
    if (!described.load(std::memory_order_acquire)) {
        memory_.contexts().describe_device(device);
        described.store(true, std::memory_order_release);
    }
}

void Ledger::record(const Before& before, Api api, std::uint32_t object, CUcontext context,
                    const UsedMemory& now) {
    // What another thread's call takes meanwhile is in both measurements.
    const bool uncertain = before.changes != memory_.changes() ||
                           before.measurements != measurements_.load(std::memory_order_relaxed);
    const CUdevice device = before.call.device;
    describe(device);
    trace::LedgerEntry entry;
    entry.device = static_cast<std::uint32_t>(device);
    entry.kind = before.call.kind;
    entry.api = memory_.api_id(api);
    entry.stack = memory_.recorder()->capture_call_site();
    entry.object = object;
    entry.context = reinterpret_cast<std::uintptr_t>(context);
    entry.before = before.used;
    entry.after = now.used;
    if (before.call.kind == LedgerKind::graph) {
        const std::uint64_t pools = reserved_by_pools(device);
        entry.after = now.used + before.pools - std::min(pools, now.used + before.pools);
    }
    entry.uncertain = uncertain;
    memory_.recorder()->record(entry);
    record_sample(memory_, device, now);
}

void Ledger::after(const Before& before, Api api, std::uint32_t object) noexcept {
    if (!before.measures) {
        return;
    }
    const threads::NoCancellation no_cancellation;
    try {
        const Spending spending(budget_, before.call.kind);
        const std::optional<UsedMemory> now = used_memory(memory_);
        if (now && now->used != before.used) {
            record(before, api, object, current_context(), *now);
        } else if (now && !before.call.returns) {
            count_unrecorded(before.call.device, before.call.kind, CallWas::without_change);
        }
        measurements_.fetch_add(1, std::memory_order_relaxed);
    } catch (const std::bad_alloc&) {  // not measured
    }
}

bool Ledger::context_created(const Before& before, Api api, CUcontext context) noexcept {
    if (!before.measures || context == nullptr) {
        return false;
    }
    const threads::NoCancellation no_cancellation;
    try {
        const CUdevice device = before.call.device;
        const Spending spending(budget_, LedgerKind::context);
        {
            const threads::LockGuard lock(mutex_);
            std::erase_if(contexts_, [context](const KnownContext& known) {
                return known.handle == context;  // of one that ended unseen
            });
            contexts_.push_back({context, device});
            several_contexts_.store(contexts_.size() > 1, std::memory_order_relaxed);
        }
        launched.clear();
        const CurrentContext guard(context);
        if (const std::optional<UsedMemory> now = used_memory(memory_)) {
            record(before, api, 0, context, *now);
            return witness_.watch(device, device_uuid(device), device_pci_address(device));
        }
    } catch (const std::bad_alloc&) {  // not measured
    }
    return false;
}

void Ledger::context_ended(Api api, CUcontext context) noexcept {
    if (!enabled_) {
        return;
    }
    loaded_code_.clear();
    launched.clear();
    const threads::NoCancellation no_cancellation;
    try {
        const Spending spending(budget_, LedgerKind::context);
        CUdevice device = -1;
        {
            const threads::LockGuard lock(mutex_);
            const auto known =
                std::find_if(contexts_.begin(), contexts_.end(),
                             [context](const auto& each) { return each.handle == context; });
            if (known == contexts_.end()) {
                return;
            }
            device = known->device;
            contexts_.erase(known);
            several_contexts_.store(contexts_.size() > 1, std::memory_order_relaxed);
        }
        std::optional<UsedMemory> now;
        if (const CUcontext asked = any_context(device)) {
            const CurrentContext guard(asked);
            now = used_memory(memory_);
        }
        trace::LedgerEntry entry;
        entry.device = static_cast<std::uint32_t>(device);
        entry.kind = LedgerKind::context;
        entry.api = memory_.api_id(api);
        entry.context = reinterpret_cast<std::uintptr_t>(context);
        entry.after = now ? now->used : 0;
        entry.ended = true;
        memory_.recorder()->record(entry);
        if (now) {
            record_sample(memory_, device, *now);
        }
    } catch (const std::bad_alloc&) {  // not measured
    }
}

void Ledger::sample_if_due() noexcept {
    if (!enabled_) {
        return;
    }
    const CUdevice device = current_device();
    if (device < 0 || device >= max_devices) {
        return;
    }
    try {
        describe(device);
        sample_after_wait(memory_, device);
    } catch (const std::bad_alloc&) {  // no sample
    }
}

Memory::GroupLimit Ledger::group_limit(CUdevice device) {
    Memory::GroupLimit found;
    const std::optional<CgroupLimit> dmem = dmem_limit(own_cgroup(), device_pci_address(device));
    const std::optional<CgroupLimit> nvml = witness_.limit_by_nvml(device);
    const auto room = [](const std::optional<CgroupLimit>& limit) {
        return limit ? limit->room() : CgroupLimit::unlimited;
    };
    // The kernel's figures are read here; NVML's may be a minute old.
    const bool by_nvml =
        nvml && nvml->limit != CgroupLimit::unlimited &&
        (!dmem || dmem->limit == CgroupLimit::unlimited || room(nvml) < room(dmem));
    const std::optional<CgroupLimit>& tightest = by_nvml ? nvml : dmem;
    if (tightest && tightest->limit != CgroupLimit::unlimited) {
        found.source = by_nvml ? trace::LimitSource::nvml : trace::LimitSource::dmem;
        found.figures = figures_of(*tightest, memory_.recorder());
        found.group = tightest->path;
    }
    return found;
}

void Ledger::record_skipped() noexcept {
    if (!enabled_) {
        return;
    }
    for (CUdevice device = 0; device < max_devices; ++device) {
        if (described_[static_cast<std::size_t>(device)].load(std::memory_order_acquire)) {
            record_unrecorded(memory_, device);
        }
    }
}

}  // namespace memlab::interpose
