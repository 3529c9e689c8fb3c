// Contexts: primary ones, created ones, the current-context stack of each thread, synchronization
// of a whole context, peer access, and green contexts as far as memory sees them.
#include <algorithm>
#include <cstring>
#include <set>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/capture.hpp"
#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/options.hpp"
#include "tests/simcuda/pool.hpp"
#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {
namespace {

constexpr int stack_limit = 128;

struct ContextStack {
    Context* contexts[stack_limit];
    int depth;
};

thread_local ContextStack stack;

// Dead contexts stay allocated: a thread may still have one current.
std::set<Context*>& registry() {
    static std::set<Context*>& all = *new std::set<Context*>;
    return all;
}

uint64_t next_id = 0;

bool push(Context* context) {
    if (stack.depth == stack_limit) {
        return false;
    }
    stack.contexts[stack.depth++] = context;
    return true;
}

}  // namespace

CUcontext handle(Context* context) {
    return reinterpret_cast<CUcontext>(context);
}

Context* find_context(CUcontext context) {
    auto* pointer = reinterpret_cast<Context*>(context);
    return registry().contains(pointer) ? pointer : nullptr;
}

std::vector<Context*> live_contexts() {
    std::vector<Context*> live;
    for (Context* context : registry()) {
        if (context->alive) {
            live.push_back(context);
        }
    }
    return live;
}

std::vector<Context*> family(Context& context) {
    std::vector<Context*> members{&context};
    for (Context* other : registry()) {
        if (other->alive && other->parent == &context) {
            members.push_back(other);
        }
    }
    return members;
}

CUresult current_context(Context*& context) {
    if (stack.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    context = stack.contexts[stack.depth - 1];
    if (context == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

Context* add_context(int ordinal, unsigned flags, bool primary, Context* parent) {
    Device& device = *find_device(ordinal);
    if (parent == nullptr) {
        if (device.used + options().context_memory > options().memory) {
            return nullptr;
        }
        device.used += options().context_memory;
    }
    // A primary context keeps its handle over resets, as the real driver's does.
    auto* context = primary && device.primary != nullptr ? device.primary : new Context;
    *context = Context{};
    context->device = ordinal;
    context->primary = primary;
    context->flags = flags;
    context->id = ++next_id;
    context->parent = parent;
    registry().insert(context);
    if (primary) {
        device.primary = context;
    }
    return context;
}

static bool take_bytes(Context& owner, uint64_t bytes) {
    Device& device = *find_device(owner.device);
    if (bytes > options().memory - std::min<uint64_t>(device.used, options().memory)) {
        return false;
    }
    device.used += bytes;
    owner.taken += bytes;
    return true;
}

static void give_back_bytes(Context& owner, uint64_t wanted) {
    const uint64_t bytes = std::min(owner.taken, wanted);
    owner.taken -= bytes;
    find_device(owner.device)->used -= bytes;
}

bool take(Context& context, Taken what) {
    return take_bytes(root(context), options().takes[static_cast<size_t>(what)]);
}

void give_back(Context& context, Taken what) {
    give_back_bytes(root(context), options().takes[static_cast<size_t>(what)]);
}

bool grow_local_memory(Context& context, uint64_t bytes_per_thread) {
    int processors = 0;
    int threads = 0;
    sim_cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, context.device);
    sim_cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                             context.device);
    Context& owner = root(context);
    const uint64_t needed =
        bytes_per_thread * static_cast<uint64_t>(processors) * static_cast<uint64_t>(threads);
    if (needed <= owner.local) {
        return true;
    }
    if (!take_bytes(owner, needed - owner.local)) {
        return false;
    }
    owner.local = needed;
    return true;
}

void end_context(Context& context) {
    wait_for_context(context);
    show_output(context);
    end_captures(context);
    std::vector<uint64_t> owned;
    for (const auto& [base, allocation] : allocations()) {
        if (allocation.context == &context && allocation.pool == nullptr &&
            allocation.kind != Kind::vmm) {
            owned.push_back(base);
        }
    }
    for (const uint64_t base : owned) {
        release_allocation(base);
    }
    if (context.primary) {
        reset_pools(context.device);
    }
    forget_events(context);
    for (const auto& stream : context.streams) {
        return_clock_index(stream->clock_index, stream->epoch);
    }
    context.streams.clear();
    context.per_thread.clear();
    context.legacy.reset();
    context.barrier.clear();
    if (context.parent == nullptr) {
        find_device(context.device)->used -= options().context_memory + context.taken;
        context.taken = context.local = 0;
    }
    for (Context* other : registry()) {
        std::erase(other->peers, &context);
    }
    context.alive = false;
}

}  // namespace memlab::simcuda

using namespace memlab::simcuda;

namespace {

CUresult create(CUcontext* pctx, unsigned flags, CUdevice dev) {
    if (pctx == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(dev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    Context* context = add_context(dev, flags, false);
    if (context == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    push(context);
    *pctx = handle(context);
    return CUDA_SUCCESS;
}

CUresult destroy(CUcontext ctx) {
    Context* context = find_context(ctx);
    if (ctx == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (context == nullptr || context->primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!context->alive) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    end_context(*context);
    // Destroying the current context also pops it from the calling thread.
    if (stack.depth > 0 && stack.contexts[stack.depth - 1] == context) {
        --stack.depth;
    }
    return CUDA_SUCCESS;
}

Context* live(CUcontext ctx) {
    Context* context = find_context(ctx);
    return context != nullptr && context->alive ? context : nullptr;
}

}  // namespace

CUresult sim_cuCtxAttach(CUcontext* pctx, unsigned int flags) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (pctx == nullptr || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ++context->usage;
    *pctx = handle(context);
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxDetach(CUcontext ctx) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (handle(context) != ctx || context->primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return --context->usage == 0 ? destroy(ctx) : CUDA_SUCCESS;
}

CUresult sim_cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
    return create(pctx, flags, dev);
}

CUresult sim_cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
    return create(pctx, flags, dev);
}

CUresult sim_cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int, unsigned int flags,
                            CUdevice dev) {
    return create(pctx, flags, dev);
}

CUresult sim_cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams*, unsigned int flags, CUdevice dev) {
    return create(pctx, flags, dev);
}

CUresult sim_cuCtxDestroy(CUcontext ctx) {
    return destroy(ctx);
}

CUresult sim_cuCtxDestroy_v2(CUcontext ctx) {
    return destroy(ctx);
}

CUresult sim_cuCtxPushCurrent_v2(CUcontext ctx) {
    if (ctx == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Context* context = find_context(ctx);
    if (context == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return push(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuCtxPushCurrent(CUcontext ctx) {
    return sim_cuCtxPushCurrent_v2(ctx);
}

CUresult sim_cuCtxPopCurrent_v2(CUcontext* pctx) {
    if (stack.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    Context* top = stack.contexts[--stack.depth];
    if (pctx != nullptr) {
        *pctx = handle(top);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxPopCurrent(CUcontext* pctx) {
    return sim_cuCtxPopCurrent_v2(pctx);
}

CUresult sim_cuCtxSetCurrent(CUcontext ctx) {
    if (ctx == nullptr) {
        stack.depth = std::max(stack.depth - 1, 0);
        return CUDA_SUCCESS;
    }
    Context* context = find_context(ctx);
    if (context == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (stack.depth == 0) {
        push(context);
    } else {
        stack.contexts[stack.depth - 1] = context;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetCurrent(CUcontext* pctx) {
    if (pctx == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = stack.depth == 0 ? nullptr : handle(stack.contexts[stack.depth - 1]);
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetDevice(CUdevice* device) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
    if (ctx == nullptr) {
        return sim_cuCtxGetDevice(device);
    }
    Context* context = live(ctx);
    if (context == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetFlags(unsigned int* flags) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (flags == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetFlags(unsigned int flags) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
    Context* context = live(ctx);
    if (ctx == nullptr) {
        if (CUresult error = current_context(context)) {
            return error;
        }
    }
    if (context == nullptr || ctxId == nullptr) {
        return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    }
    *ctxId = context->id;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
    if (ctx != nullptr && live(ctx) == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (version == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSynchronize_v2(CUcontext ctx) {
    Context* context = live(ctx);
    if (ctx == nullptr) {
        if (CUresult error = current_context(context)) {
            return error;
        }
    }
    if (context == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (CUresult refused = refuse_while_capturing(*context)) {
        return refused;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    wait_for_context(*context);
    show_output(*context);
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSynchronize() {
    return sim_cuCtxSynchronize_v2(nullptr);
}

CUresult sim_cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (pvalue == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (limit >= std::size(context->limits)) {
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    *pvalue = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetLimit(CUlimit limit, size_t value) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (limit >= std::size(context->limits)) {
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    if (!context->limit_changed) {
        if (!take(*context, Taken::limit)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        context->limit_changed = true;
    }
    if (limit == CU_LIMIT_STACK_SIZE) {
        Context& owner = root(*context);
        give_back_bytes(owner, owner.local);
        owner.local = 0;
    }
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
    if (pconfig == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pconfig = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetCacheConfig(CUfunc_cache) {
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
    if (leastPriority != nullptr) {
        *leastPriority = 0;
    }
    if (greatestPriority != nullptr) {
        *greatestPriority = -5;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
    if (pctx == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Device* device = find_device(dev);
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (device->primary == nullptr || !device->primary->alive) {
        if (add_context(dev, device->primary_flags, true) == nullptr) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    ++device->primary_retained;
    *pctx = handle(device->primary);
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    Device* device = find_device(dev);
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (device->primary_retained == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (--device->primary_retained == 0 && device->primary->alive) {
        end_context(*device->primary);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxRelease(CUdevice dev) {
    return sim_cuDevicePrimaryCtxRelease_v2(dev);
}

// All of the context goes, whoever retains it; it comes back, with the same handle, when it is
// retained again. Who retained it must still release it.
CUresult sim_cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    Device* device = find_device(dev);
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (device->primary != nullptr && device->primary->alive) {
        end_context(*device->primary);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxReset(CUdevice dev) {
    return sim_cuDevicePrimaryCtxReset_v2(dev);
}

CUresult sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    Device* device = find_device(dev);
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    device->primary_flags = flags;
    if (device->primary != nullptr) {
        device->primary->flags = flags;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
    return sim_cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult sim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
    Device* device = find_device(dev);
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (flags == nullptr || active == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = device->primary_flags;
    *active = device->primary != nullptr && device->primary->alive ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
    if (canAccessPeer == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(dev) == nullptr || find_device(peerDev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *canAccessPeer = dev != peerDev ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice srcDevice,
                                     CUdevice dstDevice) {
    return sim_cuDeviceCanAccessPeer(value, srcDevice, dstDevice);
}

CUresult sim_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    Context* peer = live(peerContext);
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (peer == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (peer->device == context->device) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    if (std::count(context->peers.begin(), context->peers.end(), peer) != 0 ||
        std::count(context->peer_devices.begin(), context->peer_devices.end(), peer->device) != 0) {
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    }
    context->peers.push_back(peer);
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxDisablePeerAccess(CUcontext peerContext) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    Context* peer = live(peerContext);
    if (peer == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    const bool enabled = std::erase(context->peers, peer) != 0;
    return std::erase(context->peer_devices, peer->device) != 0 || enabled
               ? CUDA_SUCCESS
               : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
