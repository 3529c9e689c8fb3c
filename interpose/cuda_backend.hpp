// The real device behind a pool: one CUDA context. See design notes at each function in the .cpp.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "allocator/backend.hpp"
#include "interpose/cuda_abi.hpp"

namespace memlab::interpose {

class Context;
class Session;

/// Makes a context current for a scope, where it is not already.
class CurrentContext {
  public:
    explicit CurrentContext(CUcontext context);
    ~CurrentContext();
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;

  private:
    bool pushed_ = false;
};

/// Every call must be made with the session's CaptureGate held shared, and no capture under way. A
/// wait lets go of the gate, and a capture may begin meanwhile: what follows in the same pool call
/// then runs in relaxed mode, or is refused where it would end the capture (fences).
class CudaBackend final : public allocator::DeviceBackend {
  public:
    CudaBackend(Session& session, Context& context, CUcontext handle);

    allocator::BackendStatus segment_alloc(std::uint64_t bytes,
                                           allocator::Address* address) override;
    allocator::BackendStatus segment_free(allocator::Address address, std::uint64_t bytes) override;
    allocator::BackendStatus fence_record(allocator::Fence* fence) override;
    allocator::FenceState fence_query(allocator::Fence fence) override;
    allocator::BackendStatus fence_wait_device(allocator::Fence fence) override;
    allocator::BackendStatus fence_wait_host(allocator::Fence fence) override;
    void fence_release(allocator::Fence fence) override;

    void set_peer(CUcontext peer, bool enabled);

  private:
    struct RecordedEvent {
        CUcontext context;
        CUevent event;
    };
    struct FenceEvents;

    allocator::BackendStatus record_events(allocator::Fence* fence);
    CUresult record_event(CUcontext context, RecordedEvent* recorded);
    CUresult synchronize_all();

    Session& session_;
    Context& context_;
    const CUcontext handle_;
    std::mutex mutex_;  // protects what follows; taken last
    std::vector<CUcontext> peers_;
    std::vector<RecordedEvent> idle_events_;
    std::size_t events_in_use_ = 0;
};

}  // namespace memlab::interpose
