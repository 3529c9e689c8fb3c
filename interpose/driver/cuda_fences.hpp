// The fences of one context. A fence is an event in the context itself and one in every peer (a
// context with access to its memory), recorded with cuCtxRecordEvent, which covers all work of a
// context; or a single event in one stream, for stream-ordered frees.
//
// Rules:
//  - nothing is recorded while the work clock shows that nothing ran since a completed fence;
//  - frees between two submissions share one record (an epoch of the work clock);
//  - no call of memlab's falls into a stream capture: a call that could end one is made with the
//    CaptureGate held, or, where it waits for the device and must hold nothing, in relaxed mode;
//  - a device-side wait is issued in the context and in every peer; peers enabled later are made to
//    wait too, because memory freed by the wait may still be in use;
//  - where no event is possible (a driver without cuCtxRecordEvent, before CUDA 12.5; no memory for
//    one) the host waits, as plain cudaFree does, without the pool's lock or the gate;
//  - a host that waits sleeps where the context's flags say so (CU_CTX_SCHED_BLOCKING_SYNC), which
//    costs it some 50 us, and else spins as the driver does. Events wait in one way or the other
//    from their creation, flags may change: records get other events when they are used next;
//  - the driver shows what kernels printed when the host waits for an event, even for one that was
//    never recorded, and not when it asks for one (H100: 0.28 us, and 0.14): a free that found the
//    device idle without a wait waits for such an event, once for each time of the work clock;
//  - a peer is not touched from before its destruction begins; until the destruction has ended its
//    part of a fence counts as pending.
//
// Lock order: pool -> gate (shared) -> peers in use (shared) -> this.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "allocator/backend.hpp"
#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/work_clock.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

class CaptureGate;

/// Thread-safety: all functions, from any thread. Each holder of a fence releases it once.
class CudaFences {
  public:
    /// `late`: work may have been submitted before memlab was loaded, so the device is not known to
    /// be idle.
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
    /// As DeviceBackend::ordered_behind: true while all work goes to one stream (one_stream.hpp).
    bool ordered_behind(allocator::Fence fence);
    /// Call when a second stream begins: orders all future work of the contexts behind the newest
    /// fence for which ordered_behind() returned true.
    void order_second_stream();
    CUresult wait_host(allocator::Fence fence);
    /// Waits on the host for all submitted work of the context and its peers, captures or not.
    CUresult wait_for_context_and_peers();
    /// Waits on the host for the last fences that work was ordered behind. Their memory may have
    /// been declared free by that order alone, with old work still running on it.
    void wait_for_barriers();
    /// Whether that would return at once. Never blocks.
    bool barriers_complete();
    void release(allocator::Fence fence) noexcept;

    /// Whether kernels of the context may have printed what no wait of memlab's has shown yet.
    bool may_hold_output() const {
        const std::optional<std::uint64_t> time = work_clock.now();
        return !time || *time != shown_at_.load(std::memory_order_relaxed);
    }
    /// Shows what they printed, as far as they are complete. Waits for no work.
    void show_output();

    /// True when no running work can use the context's memory. Never blocks.
    bool idle();

    /// Whether there was ever no host memory for a fence. Blocks may be deferred since, as during a
    /// capture.
    bool lacked_memory() const { return lacked_memory_.load(std::memory_order_relaxed); }

    /// Whether there was ever a peer.
    bool had_peers() const { return had_peers_.load(std::memory_order_acquire); }

    /// From now on work of `peer` may use the context's memory.
    void add_peer(CUcontext peer);
    /// `peer` is about to be destroyed: waits until no call of memlab's uses it and blocks new
    /// ones.
    void before_peer_destroy(CUcontext peer);
    /// The destroying call has returned. `destroyed` false: it failed, and the peer is usable
    /// again.
    void after_peer_destroy(CUcontext peer, bool destroyed);
    /// The context itself is destroyed: releases the host memory of records that no fence holds.
    void after_context_destroy();

  private:
    struct RecordedEvent {
        CUcontext context;
        CUevent event;  ///< null: the context was being destroyed
        bool ending;
    };
    struct Peer {
        CUcontext context;
        bool ending;
    };
    struct Record;
    class PeersInUse;
    using Time = std::optional<std::uint64_t>;

    static Record* to_record(allocator::Fence fence);
    bool idle_since(Time time) const;
    void update_idle_time(const Record& record);
    CUevent never_recorded_event();
    bool share(Record* newest, allocator::StreamId stream, Time time, allocator::Fence* fence);
    Record* take_record(Record** spare) MEMLAB_REQUIRES(mutex_);
    void fit_events(Record& record, bool in_use);
    bool waits_asleep();
    CUresult wait_for_event(CUevent event, bool blocking, bool asleep);
    void recycle(Record& record) MEMLAB_REQUIRES(mutex_);
    CUresult publish(Record& record, CUresult recorded, Time time, Record** newest,
                     allocator::Fence* fence) MEMLAB_REQUIRES(mutex_);
    CUresult record_new(Time time, allocator::Fence* fence);
    CUresult record_events(Record& record, const PeersInUse& in_use);
    CUresult record_stream(allocator::StreamId key, CUstream stream, CUcontext context, Time time,
                           allocator::Fence* fence);
    CUresult fall_back_to_host_wait(CUresult problem, Time time, allocator::Fence* fence);
    allocator::FenceState query_events(const Record& record);
    CUresult wait_for_events(const Record& record);
    CUresult wait_for_all(bool may_end_captures);
    void peers_changed() MEMLAB_REQUIRES(mutex_);
    CUresult order_behind(const Record& record);
    void order_peer_behind(CUcontext peer, const Record& record);

    CaptureGate& captures_;
    const CUcontext context_;
    /// Time of the work clock at which the device was last known to be idle.
    std::atomic<std::uint64_t> idle_at_;
    /// Time of the work clock up to which the output of the context's kernels has been shown.
    std::atomic<std::uint64_t> shown_at_;
    /// Whether the context's flags said so when the host last waited, or an event was made.
    std::atomic<bool> blocking_{false};

    /// Held shared around driver calls that name a peer or its event, exclusively where a peer is
    /// destroyed. Not taken until there is a peer.
    threads::SharedMutex peers_in_use_;
    std::atomic<bool> had_peers_{false};
    std::atomic<bool> lacked_memory_{false};

    mutable threads::Mutex mutex_;  // taken last
    std::vector<Peer> peers_ MEMLAB_GUARDED_BY(mutex_);
    std::uint64_t peers_generation_ MEMLAB_GUARDED_BY(mutex_) = 0;
    CUevent never_recorded_ MEMLAB_GUARDED_BY(mutex_) = nullptr;  ///< null: not created yet
    std::vector<std::unique_ptr<Record>> records_
        MEMLAB_GUARDED_BY(mutex_);                        ///< all, free ones included
    Record* newest_ MEMLAB_GUARDED_BY(mutex_) = nullptr;  ///< null: not to be shared
    Record* newest_in_stream_ MEMLAB_GUARDED_BY(mutex_) =
        nullptr;  ///< the same, for single-stream records
    // Free lists of released records, which keep their events.
    Record* spare_ MEMLAB_GUARDED_BY(mutex_) = nullptr;
    Record* spare_in_stream_ MEMLAB_GUARDED_BY(mutex_) = nullptr;
    // Fences that future work is ordered behind; each pointer holds a reference.
    Record* barrier_ MEMLAB_GUARDED_BY(mutex_) = nullptr;  ///< by wait_device()
    Record* ordered_ MEMLAB_GUARDED_BY(mutex_) =
        nullptr;  ///< by the single stream; after the switch, by the device
};

}  // namespace memlab::interpose
