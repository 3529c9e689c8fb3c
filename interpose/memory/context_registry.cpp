#include "interpose/memory/context_registry.hpp"

#include <algorithm>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/memory/memory.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

// The thread's last lookup, valid while the registry's generation is unchanged.
struct LastContext {
    CUcontext handle;
    Context* context;
    std::uint64_t generation;
};
__attribute__((tls_model("initial-exec"))) thread_local LastContext last_context{};

std::uint64_t query_unique_id(CUcontext handle) {
    unsigned long long id = 0;
    return call_real(&Driver::cuCtxGetId, handle, &id) == CUDA_SUCCESS ? id : 0;
}

// The device's primary context if it is active. Retaining an inactive one would create it.
CUcontext active_primary(CUdevice device) {
    unsigned flags = 0;
    int active = 0;
    CUcontext primary = nullptr;
    if (call_real(&Driver::cuDevicePrimaryCtxGetState, device, &flags, &active) != CUDA_SUCCESS ||
        active == 0 ||
        call_real(&Driver::cuDevicePrimaryCtxRetain, &primary, device) != CUDA_SUCCESS) {
        return nullptr;
    }
    call_real(&Driver::cuDevicePrimaryCtxRelease_v2, device);
    return primary;
}

}  // namespace

Context::Context(Memory& memory, CUcontext handle, CUdevice device, std::uint32_t id, bool primary,
                 bool first)
    : handle_(handle),
      device_(device),
      id_(id),
      primary_(primary),
      unique_id_(query_unique_id(handle)),
      backend_(memory, *this, handle),
      observer_(memory.recorder(), static_cast<std::uint32_t>(device), id),
      pool_(allocator::options_of_context(memory.settings().pool_options, first), backend_,
            &observer_) {}

std::uint64_t Context::unused_bytes() const {
    const allocator::PoolStats stats = pool_.stats();
    return static_cast<std::uint64_t>(stats.reserved_bytes.all.current -
                                      stats.allocated_bytes.all.current);
}

Context* ContextRegistry::find(CUcontext handle) const {
    const threads::SharedLockGuard lock(mutex_);
    const auto it = contexts_.find(handle);
    return it == contexts_.end() ? nullptr : it->second;
}

[[gnu::hot]] Context* ContextRegistry::current() {
    CUcontext handle = nullptr;
    if (call_real(&Driver::cuCtxGetCurrent, &handle) != CUDA_SUCCESS || handle == nullptr) {
        return nullptr;
    }
    const std::uint64_t generation = generation_.load(std::memory_order_acquire);
    if (last_context.handle == handle && last_context.generation == generation) {
        return last_context.context;
    }
    check_identity(handle);
    Context* known = find(handle);
    if (known == nullptr) {
        known = add(handle);
    }
    last_context = {handle, known, known != nullptr ? generation : 0};
    return known;
}

CUcontext ContextRegistry::registered_primary(CUdevice device) const {
    const threads::SharedLockGuard lock(mutex_);
    for (const auto& [handle, context] : contexts_) {
        if (context->primary() && context->device() == device) {
            return context->handle();
        }
    }
    return nullptr;
}

// Registered contexts first: a broken primary context can no longer be retained.
CUcontext ContextRegistry::primary_of(CUdevice device) const {
    const CUcontext registered = registered_primary(device);
    return registered != nullptr ? registered : active_primary(device);
}

void ContextRegistry::check_identity(CUcontext handle) {
    const Context* known = find(handle);
    // A green context's handle maps to its primary context.
    if (known == nullptr || known->handle() != handle || known->unique_id() == 0) {
        return;
    }
    const std::uint64_t id = query_unique_id(handle);
    if (id != 0 && id != known->unique_id()) {
        after_destroy(handle, before_destroy(handle), true);
    }
}

Context* ContextRegistry::add(CUcontext handle) {
    CUdevice device = 0;
    if (call_real(&Driver::cuCtxGetDevice, &device) != CUDA_SUCCESS) {
        return nullptr;
    }
    const bool primary = active_primary(device) == handle;
    const threads::LockGuard lock(mutex_);
    if (const auto it = contexts_.find(handle); it != contexts_.end()) {
        return it->second;
    }
    describe_locked(device);
    const auto id = static_cast<std::uint32_t>(owned_.size() + 1);
    if (profiler::Recorder* recorder = memory_.recorder()) {
        trace::ContextInfo info;
        info.id = id;
        info.device = static_cast<std::uint32_t>(device);
        info.primary = primary;
        recorder->record(info);
    }
    const bool first = std::none_of(owned_.begin(), owned_.end(), [device](const auto& context) {
        return context->device() == device;
    });
    owned_.push_back(std::make_unique<Context>(memory_, handle, device, id, primary, first));
    dropped_.reserve(owned_.capacity());  // then a context's end allocates nothing
    Context* context = owned_.back().get();
    for (const DeviceAccess& access : device_accesses_) {
        grant_access(*context, access);
    }
    contexts_[handle] = context;
    memory_.on_pool_created();
    int devices = 0;
    if (owned_.size() > 1 || call_real(&Driver::cuDeviceGetCount, &devices) != CUDA_SUCCESS ||
        devices > 1) {
        expect_multiple();
    }
    return context;
}

void ContextRegistry::describe_device(CUdevice device) {
    const threads::LockGuard lock(mutex_);
    describe_locked(device);
}

void ContextRegistry::describe_locked(CUdevice device) {
    if (std::find(described_devices_.begin(), described_devices_.end(), device) !=
        described_devices_.end()) {
        return;
    }
    described_devices_.push_back(device);
    if (profiler::Recorder* recorder = memory_.recorder()) {
        recorder->record(device_info(device));
    }
}

trace::DeviceInfo ContextRegistry::device_info(CUdevice device) const {
    trace::DeviceInfo info;
    info.index = static_cast<std::uint32_t>(device);
    char name[256] = "";
    if (call_real(&Driver::cuDeviceGetName, name, static_cast<int>(sizeof(name)), device) ==
        CUDA_SUCCESS) {
        info.name = name;
    }
    info.uuid = device_uuid(device);
    std::size_t total = 0;
    if (call_real(&Driver::cuDeviceTotalMem_v2, &total, device) == CUDA_SUCCESS) {
        info.total_bytes = total;
    }
    info.limit_bytes = memory_.limits().limit_for(device);
    call_real(&Driver::cuDriverGetVersion, &info.driver_version);
    return info;
}

std::vector<Context*> ContextRegistry::all(CUdevice device) const {
    const threads::SharedLockGuard lock(mutex_);
    std::vector<Context*> found;
    for (const auto& [handle, context] : contexts_) {
        if (context->handle() == handle && (device < 0 || context->device() == device)) {
            found.push_back(context);
        }
    }
    std::sort(found.begin(), found.end(),
              [](const Context* a, const Context* b) { return a->id() < b->id(); });
    return found;
}

Context* ContextRegistry::next(CUdevice device, std::size_t* index) const {
    const threads::SharedLockGuard lock(mutex_);
    while (*index < owned_.size()) {
        Context* const context = owned_[(*index)++].get();
        const auto it = contexts_.find(context->handle());
        if (it != contexts_.end() && it->second == context &&
            (device < 0 || context->device() == device)) {
            return context;
        }
    }
    return nullptr;
}

void ContextRegistry::add_green(CUcontext green, CUdevice device) {
    CUcontext primary = nullptr;
    if (call_real(&Driver::cuDevicePrimaryCtxRetain, &primary, device) != CUDA_SUCCESS) {
        return;
    }
    Context* owner = find(primary);
    if (owner == nullptr) {
        const CurrentContext current(primary);
        owner = add(primary);
    }
    call_real(&Driver::cuDevicePrimaryCtxRelease_v2, device);
    if (owner != nullptr) {
        const threads::LockGuard lock(mutex_);
        contexts_[green] = owner;
        generation_.fetch_add(1, std::memory_order_release);
    }
}

void ContextRegistry::share_memory(CUcontext accessor, CUcontext owner) {
    Context* owning = find(owner);
    if (owning == nullptr) {
        const CurrentContext current(owner);
        owning = add(owner);
    }
    if (owning != nullptr) {
        owning->backend().fences().add_peer(accessor);
        CUdevice device = 0;
        if (call_real(&Driver::cuCtxGetDevice, &device) == CUDA_SUCCESS) {
            owning->backend().pages().set_peer(device, true);
        }
    }
}

void ContextRegistry::grant_access(Context& owner, const DeviceAccess& access) {
    if (owner.device() == access.owner) {
        owner.backend().fences().add_peer(access.accessor);
        owner.backend().pages().set_peer(access.accessor_device, true);
    }
}

void ContextRegistry::share_memory_of(CUdevice owner) {
    DeviceAccess access{primary_if_green(current_context()), 0, owner};
    if (access.accessor == nullptr ||
        call_real(&Driver::cuCtxGetDevice, &access.accessor_device) != CUDA_SUCCESS ||
        access.accessor_device == owner) {
        return;
    }
    {
        const threads::LockGuard lock(mutex_);
        if (std::find(device_accesses_.begin(), device_accesses_.end(), access) !=
            device_accesses_.end()) {
            return;
        }
        device_accesses_.push_back(access);
    }
    for (Context* context : all(owner)) {
        grant_access(*context, access);
    }
}

void ContextRegistry::unshare_memory(CUcontext owner) {
    CUdevice device = 0;
    Context* owning = find(owner);
    if (owning == nullptr || call_real(&Driver::cuCtxGetDevice, &device) != CUDA_SUCCESS) {
        return;
    }
    owning->backend().pages().set_peer(device, false);
    const DeviceAccess taken{primary_if_green(current_context()), device, owning->device()};
    const threads::LockGuard lock(mutex_);
    std::erase(device_accesses_, taken);
}

void ContextRegistry::used_by_copy(std::uint64_t address, CUcontext accessor, CUdevice device) {
    Context* owner = memory_.segments().find(address);
    if (owner == nullptr) {
        return;
    }
    if (device >= 0) {
        owner->backend().pages().allow_copies(device);
    }
    owner->backend().fences().add_peer(primary_if_green(accessor));
}

// Work of a green context counts as its primary context's.
CUcontext ContextRegistry::primary_if_green(CUcontext handle) const {
    const Context* known = find(handle);
    return known != nullptr ? known->handle() : handle;
}

void ContextRegistry::used_by_graph(std::uint64_t address, CUcontext accessor, CUdevice device) {
    Context* owner = memory_.segments().find(address);
    if (owner == nullptr) {
        return;
    }
    if (device >= 0) {
        owner->backend().pages().allow_copies(device);
    }
    if (accessor != nullptr && has_multiple()) {
        owner->backend().fences().add_peer(primary_if_green(accessor));
    }
    const threads::LockGuard lock(mutex_);
    if (std::find(used_by_graphs_.begin(), used_by_graphs_.end(), owner) == used_by_graphs_.end()) {
        used_by_graphs_.push_back(owner);
        any_used_by_graphs_.store(true, std::memory_order_release);
    }
}

void ContextRegistry::before_graph_launch(CUstream stream) {
    if (!has_multiple() || !any_used_by_graphs_.load(std::memory_order_acquire)) {
        return;
    }
    const CUcontext handle = stream_context(stream);
    if (handle == nullptr) {
        return;
    }
    std::vector<Context*> owners;
    {
        const threads::SharedLockGuard lock(mutex_);
        owners = used_by_graphs_;
    }
    const CUcontext running = primary_if_green(handle);
    for (Context* owner : owners) {
        owner->backend().fences().add_peer(running);
    }
}

void ContextRegistry::order_second_stream() noexcept {
    const threads::SharedLockGuard lock(mutex_);
    for (const auto& [handle, context] : contexts_) {
        if (context->handle() == handle) {
            context->backend().fences().order_second_stream();
        }
    }
}

std::uint64_t ContextRegistry::release_cached(CUdevice device, const Context* but) {
    const auto release = [&](std::uint64_t wait_ns) {
        const std::uint64_t until = profiler::monotonic_ns() + wait_ns;
        std::uint64_t released = 0;
        std::size_t index = 0;
        while (Context* const context = next(device, &index)) {
            const std::uint64_t unused = context != but ? context->unused_bytes() : 0;
            if (unused == 0) {
                continue;
            }
            const std::uint64_t now = profiler::monotonic_ns();
            const EndGate::Use use(context->end_gate(),
                                   wait_ns != 0 && now < until ? until - now : 0);
            if (!use.held()) {
                continue;
            }
            // Also where the host was out of memory for a fence, not only in a capture.
            if (!memory_.captures().capturing()) {
                context->pool().fence_deferred();
            }
            // Where the context has ended meanwhile, the driver has the memory.
            const std::uint64_t left = context->unused_bytes();
            released += (unused > left ? unused - left : 0) + context->pool().release_cached(true);
        }
        return released;
    };
    const std::uint64_t released = release(0);
    return released != 0 ? released : release(EndGate::max_wait_ns);
}

std::uint64_t ContextRegistry::release_cached_for(CUdevice device, std::uint64_t bytes,
                                                  const Context* but) {
    std::uint64_t unused = 0;
    std::uint64_t released = 0;
    std::size_t index = 0;
    while (const Context* const context = next(device, &index)) {
        const std::uint64_t bytes_here = context->unused_bytes();
        unused += bytes_here;
        released += context != but ? bytes_here : 0;
    }
    if (released == 0 || (bytes > unused && bytes - unused > memory_.limits().available(device))) {
        return 0;
    }
    return release_cached(device, but);
}

void ContextRegistry::on_capture_ended() {
    if (memory_.captures().capturing()) {
        return;
    }
    std::size_t index = 0;
    while (Context* const context = next(-1, &index)) {
        context->pool().fence_deferred();
    }
}

void ContextRegistry::forget_stream(std::uint64_t stream) {
    std::size_t index = 0;
    while (Context* const context = next(-1, &index)) {
        context->pool().forget_stream(stream);
    }
}

}  // namespace memlab::interpose
