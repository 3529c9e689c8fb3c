// The fences of one context: an event in the context itself and one in every context that has
// access to its memory, recorded with cuCtxRecordEvent, which captures all work of a context.
//
// Rules:
//  - nothing is recorded while the work clock says that nothing ran since a completed fence;
//  - frees between two submissions share one record (an epoch of the work clock);
//  - no call of ours falls into a stream capture: what could end one is made with the CaptureGate
//    held, or in relaxed mode where it waits for the device and must not hold anything;
//  - where the device is to wait, in the context and in every one that has access to its memory, so
//    are those that get access later: what the wait made free may still be in use;
//  - a driver without cuCtxRecordEvent (before CUDA 12.5) synchronizes, as plain cudaFree does.
//
// Lock order: pool -> gate (shared) -> this.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "allocator/backend.hpp"
#include "interpose/cuda_abi.hpp"

namespace memlab::interpose {

class CaptureGate;

/// Thread-safety: all functions, from any thread. A fence is released once by each who got it.
class CudaFences {
  public:
    /// `late`: work may have been submitted before memlab was there to count it.
    CudaFences(CaptureGate& captures, CUcontext context, bool late);

    /// As DeviceBackend::fence_record. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED during a capture.
    CUresult record(allocator::Fence* fence) noexcept;
    allocator::FenceState query(allocator::Fence fence);
    CUresult wait_device(allocator::Fence fence);
    /// As DeviceBackend::ordered_behind: while all work goes to one stream (one_stream.hpp).
    bool ordered_behind(allocator::Fence fence);
    /// A second stream begins: orders all future work of the contexts behind the newest fence that
    /// ordered_behind() held for.
    void order_second_stream();
    CUresult wait_host(allocator::Fence fence);
    /// Waits on the host for the last fences that work was ordered behind: memory may have been
    /// declared free by that alone, with old work still running on it.
    void settle_barrier();
    void release(allocator::Fence fence) noexcept;

    /// True when no work runs that could use the context's memory. Never blocks.
    bool idle();

    /// Work of `peer` may use the context's memory from now on, or no longer.
    void set_peer(CUcontext peer, bool enabled);

  private:
    struct RecordedEvent {
        CUcontext context;
        CUevent event;
    };
    struct Record;

    static Record* record_of(allocator::Fence fence);
    bool idle_since(std::optional<std::uint64_t> time) const;
    void note_idle(const Record& record);
    CUresult record_new(std::optional<std::uint64_t> time, allocator::Fence* fence);
    CUresult spare_record(std::unique_ptr<Record>* record);
    CUresult synchronize_all();
    CUresult order_behind(const Record& record);
    void order_peer_behind(CUcontext peer, const Record& record);

    CaptureGate& captures_;
    const CUcontext context_;
    /// The device was seen idle at this time of the work clock.
    std::atomic<std::uint64_t> idle_at_;

    mutable std::mutex mutex_;  // protects what follows; taken last
    std::vector<CUcontext> peers_;
    std::uint64_t peers_generation_ = 0;
    Record* newest_ = nullptr;  ///< while it may be shared
    Record* spare_ = nullptr;   ///< released ones with their events, linked
    // What future work is ordered behind, each a reference of its own.
    Record* barrier_ = nullptr;  ///< by wait_device()
    Record* ordered_ = nullptr;  ///< by the one stream, or from its end on by the device
};

}  // namespace memlab::interpose
