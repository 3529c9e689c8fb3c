// The fences of one context: an event in the context itself and one in every context that has
// access to its memory, recorded with cuCtxRecordEvent, which captures all work of a context; or
// one event in one stream, for what is freed in that stream's order.
//
// Rules:
//  - nothing is recorded while the work clock says that nothing ran since a completed fence;
//  - frees between two submissions share one record (an epoch of the work clock);
//  - no call of ours falls into a stream capture: what could end one is made with the CaptureGate
//    held, or in relaxed mode where it waits for the device and must not hold anything;
//  - where the device is to wait, in the context and in every one that has access to its memory, so
//    are those that get access later: what the wait made free may still be in use;
//  - where there can be no event (a driver without cuCtxRecordEvent, before CUDA 12.5; no memory
//  for
//    one) the host waits, as in plain cudaFree, without the pool's lock or the gate;
//  - a peer that is being destroyed is touched no more from before its destruction begins; until
//    that has ended its part of a fence counts as pending.
//
// Lock order: pool -> gate (shared) -> peers in use (shared) -> this.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "allocator/backend.hpp"
#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

class CaptureGate;

/// Thread-safety: all functions, from any thread. A fence is released once by each who got it.
class CudaFences {
  public:
    /// `late`: work may have been submitted before memlab was there to count it.
    CudaFences(CaptureGate& captures, CUcontext context, bool late);
    ~CudaFences();
    CudaFences(const CudaFences&) = delete;
    CudaFences& operator=(const CudaFences&) = delete;

    /// As DeviceBackend::fence_record. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED during a capture.
    CUresult record(allocator::Fence* fence) noexcept;
    /// As DeviceBackend::fence_record_in; `stream` is a StreamKey (one_stream.hpp).
    CUresult record_in(allocator::StreamId stream, allocator::Fence* fence, bool* alone) noexcept;
    /// As DeviceBackend::fence_needs_host_wait.
    static bool needs_host_wait(allocator::Fence fence);
    allocator::FenceState query(allocator::Fence fence);
    CUresult wait_device(allocator::Fence fence);
    /// As DeviceBackend::ordered_behind: while all work goes to one stream (one_stream.hpp).
    bool ordered_behind(allocator::Fence fence);
    /// A second stream begins: orders all future work of the contexts behind the newest fence that
    /// ordered_behind() held for.
    void order_second_stream();
    CUresult wait_host(allocator::Fence fence);
    /// Waits on the host for all that was submitted to the context and its peers, captures or not.
    CUresult wait_for_context_and_peers();
    /// Waits on the host for the last fences that work was ordered behind: memory may have been
    /// declared free by that alone, with old work still running on it.
    void settle_barrier();
    void release(allocator::Fence fence) noexcept;

    /// True when no work runs that could use the context's memory. Never blocks.
    bool idle();

    /// Work of `peer` may use the context's memory from now on.
    void add_peer(CUcontext peer);
    /// `peer` is about to be destroyed: waits until no call of ours touches it, and none does then.
    void peer_ends(CUcontext peer);
    /// It is destroyed, and its work over; or, `destroyed` false, it is there as before.
    void peer_ended(CUcontext peer, bool destroyed);
    /// The context itself is destroyed: gives back the host memory of records that no fence holds.
    void context_ended();

  private:
    struct RecordedEvent {
        CUcontext context;
        CUevent event;  ///< null: its context was ending
        bool ending;
    };
    struct Peer {
        CUcontext context;
        bool ending;
    };
    struct Record;
    class PeersInUse;
    using Time = std::optional<std::uint64_t>;

    static Record* record_of(allocator::Fence fence);
    bool idle_since(Time time) const;
    void note_idle(const Record& record);
    bool share(Record* newest, allocator::StreamId stream, Time time, allocator::Fence* fence);
    Record* take_spare(Record** spare);
    void put_aside(Record& record);
    CUresult publish(Record& record, CUresult recorded, Time time, Record** newest,
                     allocator::Fence* fence);
    CUresult record_new(Time time, allocator::Fence* fence);
    CUresult record_events(Record& record, const PeersInUse& in_use);
    CUresult record_stream(allocator::StreamId key, CUstream stream, CUcontext context, Time time,
                           allocator::Fence* fence);
    CUresult wait_instead(CUresult problem, Time time, allocator::Fence* fence);
    allocator::FenceState look_at(const Record& record);
    CUresult wait_for_events(const Record& record);
    CUresult wait_for_all(bool may_end_captures);
    void peers_changed();
    CUresult order_behind(const Record& record);
    void order_peer_behind(CUcontext peer, const Record& record);

    CaptureGate& captures_;
    const CUcontext context_;
    /// The device was seen idle at this time of the work clock.
    std::atomic<std::uint64_t> idle_at_;

    /// Held shared by whoever calls the driver with a peer or an event of one, exclusively where a
    /// peer ends. Not taken before there was a peer.
    std::shared_mutex peers_in_use_;
    std::atomic<bool> had_peers_{false};

    mutable std::mutex mutex_;  // protects what follows; taken last
    std::vector<Peer> peers_;
    std::uint64_t peers_generation_ = 0;
    std::vector<std::unique_ptr<Record>> records_;  ///< all, the spare ones too
    Record* newest_ = nullptr;                      ///< while it may be shared
    Record* newest_in_stream_ = nullptr;            ///< the same, of one stream
    // Released ones with their events, linked.
    Record* spare_ = nullptr;
    Record* spare_in_stream_ = nullptr;
    // What future work is ordered behind, each a reference of its own.
    Record* barrier_ = nullptr;  ///< by wait_device()
    Record* ordered_ = nullptr;  ///< by the one stream, or from its end on by the device
};

}  // namespace memlab::interpose
