#include "interpose/cuda_backend.hpp"

#include <algorithm>
#include <memory>
#include <new>

#include "interpose/context_registry.hpp"
#include "interpose/driver.hpp"
#include "interpose/session.hpp"

namespace memlab::interpose {
namespace {

using allocator::BackendStatus;
using allocator::Fence;
using allocator::FenceState;

BackendStatus status_of(CUresult result) {
    BackendStatus status;
    status.code = result;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        status.kind = BackendStatus::Kind::out_of_memory;
    } else if (result != CUDA_SUCCESS) {
        status.kind = BackendStatus::Kind::error;
    }
    return status;
}

// While another thread captures in global mode, calls that CUDA thinks unsafe would fail and end
// that capture; ours cannot hurt it, so they run in relaxed mode. A capture can only be there after
// a wait that let go of the gate, so this usually costs nothing.
class RelaxedCapture {
  public:
    explicit RelaxedCapture(bool needed) {
        exchanged_ =
            needed && call_real(&Driver::cuThreadExchangeStreamCaptureMode, &mode_) == CUDA_SUCCESS;
    }
    ~RelaxedCapture() {
        if (exchanged_) {
            call_real(&Driver::cuThreadExchangeStreamCaptureMode, &mode_);
        }
    }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool exchanged_ = false;
};

}  // namespace

// A fence is an event in the block's own context and one in every context that has access to its
// memory. Owned by whoever holds the Fence value, a pointer to this.
struct CudaBackend::FenceEvents {
    std::vector<RecordedEvent> events;
    std::size_t reserved = 0;  // places kept for them among the idle ones
};

CurrentContext::CurrentContext(CUcontext context) {
    CUcontext current = nullptr;
    if (call_real(&Driver::cuCtxGetCurrent, &current) == CUDA_SUCCESS && current != context) {
        pushed_ = call_real(&Driver::cuCtxPushCurrent_v2, context) == CUDA_SUCCESS;
    }
}

CurrentContext::~CurrentContext() {
    if (pushed_) {
        CUcontext popped = nullptr;
        call_real(&Driver::cuCtxPopCurrent_v2, &popped);
    }
}

CudaBackend::CudaBackend(Session& session, Context& context, CUcontext handle)
    : session_(session), context_(context), handle_(handle) {}

BackendStatus CudaBackend::segment_alloc(std::uint64_t bytes, allocator::Address* address) {
    const RelaxedCapture relaxed(session_.captures().capturing());
    const CurrentContext current(handle_);
    CUdeviceptr pointer = 0;
    const CUresult result = call_real(&Driver::cuMemAlloc_v2, &pointer, std::size_t{bytes});
    if (result == CUDA_SUCCESS) {
        *address = pointer;
        if (!session_.segments().add(pointer, bytes, &context_)) {
            call_real(&Driver::cuMemFree_v2, pointer);
            return {BackendStatus::Kind::error, allocator::out_of_memory_code};
        }
    }
    return status_of(result);
}

BackendStatus CudaBackend::segment_free(allocator::Address address, std::uint64_t /*bytes*/) {
    const RelaxedCapture relaxed(session_.captures().capturing());
    const CurrentContext current(handle_);
    // Out of the index before the driver can give the address to somebody else.
    session_.segments().remove(address, &context_);
    return status_of(call_real(&Driver::cuMemFree_v2, CUdeviceptr{address}));
}

CUresult CudaBackend::record_event(CUcontext context, RecordedEvent* recorded) {
    recorded->context = context;
    recorded->event = nullptr;
    {
        const std::lock_guard lock(mutex_);
        const auto idle =
            std::find_if(idle_events_.rbegin(), idle_events_.rend(),
                         [&](const RecordedEvent& e) { return e.context == context; });
        if (idle != idle_events_.rend()) {
            recorded->event = idle->event;
            idle_events_.erase(std::next(idle).base());
        }
    }
    if (recorded->event == nullptr) {
        const CurrentContext current(context);
        const CUresult created = call_real(&Driver::cuEventCreate, &recorded->event,
                                           static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
        if (created != CUDA_SUCCESS) {
            return created;
        }
    }
    const CUresult result = call_real(&Driver::cuCtxRecordEvent, context, recorded->event);
    if (result != CUDA_SUCCESS) {
        const std::lock_guard lock(mutex_);
        idle_events_.push_back(*recorded);
    }
    return result;
}

// What plain CUDA does in every cudaFree: wait for the device.
CUresult CudaBackend::synchronize_all() {
    const auto synchronize = [](CUcontext context) {
        const CurrentContext current(context);
        return call_real(&Driver::cuCtxSynchronize);
    };
    const CUresult result = synchronize(handle_);
    for (std::size_t i = 0;; ++i) {
        CUcontext peer = nullptr;
        {
            const std::lock_guard lock(mutex_);
            if (i >= peers_.size()) {
                return result;
            }
            peer = peers_[i];
        }
        synchronize(peer);
    }
}

BackendStatus CudaBackend::fence_record(Fence* fence) {
    *fence = 0;
    if (session_.captures().capturing()) {
        return status_of(
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);  // recording it would end the capture
    }
    const Driver* real = driver();
    if (real->cuCtxRecordEvent == nullptr || real->cuCtxWaitEvent == nullptr) {
        return status_of(synchronize_all());  // older than CUDA 12.5
    }
    try {
        return record_events(fence);
    } catch (const std::bad_alloc&) {  // the pool keeps the block back and tries again later
        return {BackendStatus::Kind::error, allocator::out_of_memory_code};
    }
}

BackendStatus CudaBackend::record_events(Fence* fence) {
    std::vector<CUcontext> contexts{handle_};
    {
        const std::lock_guard lock(mutex_);
        contexts.insert(contexts.end(), peers_.begin(), peers_.end());
        // So that a release never allocates.
        idle_events_.reserve(idle_events_.size() + events_in_use_ + contexts.size());
        events_in_use_ += contexts.size();
    }
    auto events = std::make_unique<FenceEvents>();
    events->reserved = contexts.size();
    events->events.reserve(contexts.size());
    CUresult own_result = CUDA_SUCCESS;
    for (const CUcontext context : contexts) {
        RecordedEvent recorded{};
        const CUresult result = record_event(context, &recorded);
        if (result == CUDA_SUCCESS) {
            events->events.push_back(recorded);
        } else if (context == handle_) {
            own_result = result;
            break;
        }
        // A peer context that is gone has no work left to wait for.
    }
    if (own_result != CUDA_SUCCESS) {
        fence_release(reinterpret_cast<Fence>(events.release()));
        const bool unavailable =
            own_result == CUDA_ERROR_NOT_SUPPORTED || own_result == CUDA_ERROR_NOT_FOUND;
        return status_of(unavailable ? synchronize_all() : own_result);
    }
    *fence = reinterpret_cast<Fence>(events.release());
    return {};
}

FenceState CudaBackend::fence_query(Fence fence) {
    const RelaxedCapture relaxed(session_.captures().capturing());
    for (const RecordedEvent& recorded : reinterpret_cast<FenceEvents*>(fence)->events) {
        const CUresult result = call_real(&Driver::cuEventQuery, recorded.event);
        if (result == CUDA_ERROR_NOT_READY) {
            return FenceState::pending;
        }
        if (result != CUDA_SUCCESS && recorded.context == handle_) {
            return FenceState::failed;
        }
    }
    return FenceState::complete;
}

BackendStatus CudaBackend::fence_wait_device(Fence fence) {
    if (session_.captures().capturing()) {
        return status_of(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    for (const RecordedEvent& recorded : reinterpret_cast<FenceEvents*>(fence)->events) {
        const CUresult result = call_real(&Driver::cuCtxWaitEvent, handle_, recorded.event);
        if (result != CUDA_SUCCESS) {
            return status_of(result);
        }
    }
    return {};
}

BackendStatus CudaBackend::fence_wait_host(Fence fence) {
    // The device may be waiting for work that another thread will only submit after a capture: let
    // go of the gate, or neither would go on.
    const CaptureGate::Released released(session_.captures());
    const RelaxedCapture relaxed(true);
    for (const RecordedEvent& recorded : reinterpret_cast<FenceEvents*>(fence)->events) {
        const CUresult result = call_real(&Driver::cuEventSynchronize, recorded.event);
        if (result != CUDA_SUCCESS && recorded.context == handle_) {
            return status_of(result);
        }
    }
    return {};
}

void CudaBackend::fence_release(Fence fence) {
    const std::unique_ptr<FenceEvents> events(reinterpret_cast<FenceEvents*>(fence));
    const std::lock_guard lock(mutex_);
    events_in_use_ -= events->reserved;
    idle_events_.insert(idle_events_.end(), events->events.begin(), events->events.end());
}

void CudaBackend::set_peer(CUcontext peer, bool enabled) {
    const std::lock_guard lock(mutex_);
    std::erase(peers_, peer);
    std::erase_if(idle_events_, [peer](const RecordedEvent& e) { return e.context == peer; });
    if (enabled) {
        peers_.push_back(peer);
    }
}

}  // namespace memlab::interpose
