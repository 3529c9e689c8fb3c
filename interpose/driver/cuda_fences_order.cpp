// Waits for fences: by the device, whose future work is ordered behind one; by the host, where no
// event is possible; and by peers that get access to a context's memory later.
#include <algorithm>
#include <memory>
#include <utility>

#include "interpose/driver/capture_gate.hpp"
#include "interpose/driver/current_context.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/fence_record.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/driver/sticky_errors.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {

using allocator::Fence;
using allocator::FenceState;

namespace {

// Off only in the test variant that does not order a second stream (tests/gpu, race hunter).
#ifdef MEMLAB_WITHOUT_ORDER
constexpr bool orders_second_stream = false;
#else
constexpr bool orders_second_stream = true;
#endif

// Off only in the test variant that ignores peers (tests/gpu, race detector).
#ifdef MEMLAB_WITHOUT_PEERS
constexpr bool covers_peers = false;
#else
constexpr bool covers_peers = true;
#endif

// The context is broken, or CUDA must not be called here: plain CUDA's free returns the same error.
bool is_caller_error(CUresult problem) {
    switch (problem) {
        case CUDA_ERROR_NOT_INITIALIZED:
        case CUDA_ERROR_DEINITIALIZED:
        case CUDA_ERROR_INVALID_CONTEXT:
        case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        case CUDA_ERROR_NOT_PERMITTED:  // in a host function
            return true;
        default:
            return is_sticky(problem);
    }
}

// Waits for all work of a context. cuMemFree does so without affecting a capture that is under way
// or begins meanwhile. If nothing can be allocated the context is synchronized, which ends
// captures.
CUresult wait_for_context(CUcontext context, bool may_end_captures) {
    const RelaxedCapture relaxed(true);
    const CurrentContext current(context);
    CUdeviceptr probe = 0;
    if (call_real(&Driver::cuMemAlloc_v2, &probe, std::size_t{512}) == CUDA_SUCCESS) {
        return call_real(&Driver::cuMemFree_v2, probe);
    }
    return may_end_captures ? call_real(&Driver::cuCtxSynchronize)
                            : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace

// No event is available: returns a fence that the host completes by waiting, as plain cudaFree
// does.
CUresult CudaFences::fall_back_to_host_wait(CUresult problem, Time time, Fence* fence) {
    if (is_caller_error(problem) || problem == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
        return problem;
    }
    const threads::LockGuard lock(mutex_);
    Record* record = take_record(&spare_);
    record->host_wait = true;
    return publish(*record, CUDA_SUCCESS, time, nullptr, fence);
}

CUresult CudaFences::wait_device(Fence fence) {
    if (to_record(fence)->host_wait) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (const CUresult result = order_behind(*to_record(fence)); result != CUDA_SUCCESS) {
        return result;
    }
    Record* earlier = nullptr;
    {
        const threads::LockGuard lock(mutex_);
        earlier = std::exchange(barrier_, to_record(fence));
        ++barrier_->references;
    }
    if (earlier != nullptr) {
        release(reinterpret_cast<Fence>(earlier));
    }
    return CUDA_SUCCESS;
}

// A peer that is being destroyed submits no further work.
CUresult CudaFences::order_behind(const Record& record) {
    const CaptureGate::Shared gate(captures_);
    if (gate.capturing()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    const PeersInUse in_use(*this);
    const threads::LockGuard lock(mutex_);
    const auto order = [&](CUevent event) {
        mutex_.assert_held();
        const CUresult result = call_real(&Driver::cuCtxWaitEvent, context_, event);
        for (const Peer& peer : peers_) {
            if (result == CUDA_SUCCESS && in_use.held() && !peer.ending) {
                call_real(&Driver::cuCtxWaitEvent, peer.context, event);
            }
        }
        return result;
    };
    CUresult result = order(record.own);
    for (const RecordedEvent& each : record.peers) {
        if (result == CUDA_SUCCESS && in_use.held()) {
            result = each.ending ? CUDA_ERROR_CONTEXT_IS_DESTROYED : order(each.event);
        }
    }
    return result;
}

// Compared by time: threads arrive in any order, and a fence covers all work that had ticked by its
// time.
[[gnu::hot]] bool CudaFences::ordered_behind(Fence fence) {
    Record* record = to_record(fence);
    Record* earlier = nullptr;
    {
        const threads::LockGuard lock(mutex_);
        if (!record->time || record->host_wait || !one_stream.orders_all_work()) {
            return false;
        }
        if (ordered_ != nullptr && *ordered_->time >= *record->time) {
            return true;
        }
        earlier = std::exchange(ordered_, record);
        ++record->references;
    }
    if (earlier != nullptr) {
        release(reinterpret_cast<Fence>(earlier));
    }
    return true;
}

void CudaFences::order_second_stream() {
    Record* last = nullptr;
    {
        const threads::LockGuard lock(mutex_);
        if (ordered_ == nullptr || !orders_second_stream) {
            return;
        }
        last = ordered_;
        ++last->references;
    }
    if (order_behind(*last) != CUDA_SUCCESS) {
        wait_host(reinterpret_cast<Fence>(last));
    }
    release(reinterpret_cast<Fence>(last));
}

// Several threads may wait at once: what is waited for stays known to all until it is complete.
void CudaFences::wait_for_barriers() {
    Record* settled[2] = {};
    {
        const threads::LockGuard lock(mutex_);
        settled[0] = barrier_;
        // ordered_ stays: later frees rely on it to cover earlier ones.
        settled[1] = ordered_;
        for (Record* each : settled) {
            if (each != nullptr) {
                ++each->references;
            }
        }
    }
    for (Record* each : settled) {
        if (each != nullptr) {
            wait_host(reinterpret_cast<Fence>(each));
        }
    }
    bool latest = false;
    {
        const threads::LockGuard lock(mutex_);
        latest = settled[0] != nullptr && barrier_ == settled[0];
        barrier_ = latest ? nullptr : barrier_;
    }
    if (latest) {
        release(reinterpret_cast<Fence>(settled[0]));
    }
    for (Record* each : settled) {
        if (each != nullptr) {
            release(reinterpret_cast<Fence>(each));
        }
    }
}

bool CudaFences::barriers_complete() {
    Record* last[2] = {};
    {
        const threads::LockGuard lock(mutex_);
        last[0] = barrier_;
        last[1] = ordered_;
        for (Record* each : last) {
            if (each != nullptr) {
                ++each->references;
            }
        }
    }
    bool complete = true;
    for (Record* each : last) {
        if (each != nullptr) {
            complete = complete && query(reinterpret_cast<Fence>(each)) == FenceState::complete;
            release(reinterpret_cast<Fence>(each));
        }
    }
    return complete;
}

// Without the gate: the device may wait for work that another thread submits after beginning a
// capture.
CUresult CudaFences::wait_host(Fence fence) {
    const Record& record = *to_record(fence);
    const CUresult result = record.host_wait ? wait_for_all(true) : wait_for_events(record);
    if (result == CUDA_SUCCESS) {
        update_idle_time(record);
        if (record.time && record.stream == 0) {
            shown_at_.store(*record.time, std::memory_order_relaxed);
        }
    }
    return result;
}

bool CudaFences::waits_asleep() {
    const CurrentContext current(context_);
    unsigned flags = 0;
    const bool blocking =
        call_real(&Driver::cuCtxGetFlags, &flags) == CUDA_SUCCESS &&
        (flags & CU_CTX_SCHED_MASK) == static_cast<unsigned>(CU_CTX_SCHED_BLOCKING_SYNC);
    blocking_.store(blocking, std::memory_order_relaxed);
    return blocking;
}

// An event that was made before the flags said that waits sleep is asked again and again, after
// longer and longer pauses: a query takes 1.4 us while the device works. In the end it is waited
// for anyway, which shows what kernels printed.
CUresult CudaFences::wait_for_event(CUevent event, bool blocking, bool asleep) {
    if (blocking || !asleep) {
        return call_real(&Driver::cuEventSynchronize, event);
    }
    constexpr std::uint64_t longest_ns = 2'000'000;
    std::uint64_t pause_ns = 50'000;
    for (;;) {
        const CUresult result = call_real(&Driver::cuEventQuery, event);
        if (result != CUDA_ERROR_NOT_READY) {
            return result == CUDA_SUCCESS ? call_real(&Driver::cuEventSynchronize, event) : result;
        }
        profiler::sleep_ns(pause_ns);
        pause_ns = std::min(longest_ns, pause_ns + pause_ns / 8);
    }
}

// The context's own event lives as long as the fence. A peer cannot be destroyed while its event is
// waited for; the destruction would wait for the same work.
CUresult CudaFences::wait_for_events(const Record& record) {
    const RelaxedCapture relaxed(true);
    const bool asleep = waits_asleep();
    if (!record.foreign) {
        if (const CUresult result = wait_for_event(record.own, record.blocking, asleep);
            result != CUDA_SUCCESS) {
            return result;
        }
    }
    const PeersInUse in_use(*this);
    if (in_use.held() && (record.stream == 0 || record.foreign)) {
        for (const RecordedEvent& each : record.peers) {
            if (!each.ending) {
                wait_for_event(each.event, record.blocking, asleep);
            }
        }
    }
    return CUDA_SUCCESS;
}

CUresult CudaFences::wait_for_all(bool may_end_captures) {
    // One by one, since a wait needs no host memory; from the start where peers came or went.
    std::uint64_t generation = 0;
    std::size_t index = 0;
    Peer peer{nullptr, true};
    const auto next_peer = [&] {
        const threads::LockGuard lock(mutex_);
        index = generation == peers_generation_ ? index : 0;
        generation = peers_generation_;
        peer = index < peers_.size() ? peers_[index++] : Peer{nullptr, true};
        return peer.context != nullptr;
    };
    CUresult result = wait_for_context(context_, may_end_captures);
    while (result == CUDA_SUCCESS && next_peer()) {
        if (!peer.ending) {
            const CUresult waited = wait_for_context(peer.context, may_end_captures);
            result = may_end_captures ? result : waited;
        }
    }
    return result;
}

CUresult CudaFences::wait_for_context_and_peers() {
    return wait_for_all(!captures_.capturing());
}

void CudaFences::add_peer(CUcontext peer) {
    if (peer == nullptr || peer == context_ || !covers_peers) {
        return;
    }
    Record* behind[2] = {};
    had_peers_.store(true, std::memory_order_release);
    {
        const threads::LockGuard lock(mutex_);
        if (std::any_of(peers_.begin(), peers_.end(),
                        [peer](const Peer& known) { return known.context == peer; })) {
            return;
        }
        peers_.push_back({peer, false});
        behind[0] = barrier_;
        behind[1] = ordered_;
        for (Record* each : behind) {
            if (each != nullptr) {
                ++each->references;
            }
        }
        peers_changed();
    }
    for (Record* each : behind) {
        if (each != nullptr) {
            order_peer_behind(peer, *each);
            release(reinterpret_cast<Fence>(each));
        }
    }
}

// Shared fences and idle times were valid for the previous set of contexts only.
void CudaFences::peers_changed() {
    ++peers_generation_;
    newest_ = nullptr;
    idle_at_.store(never_idle, std::memory_order_relaxed);
}

void CudaFences::before_peer_destroy(CUcontext peer) {
    if (!had_peers_.load(std::memory_order_acquire)) {
        return;
    }
    const threads::LockGuard exclusive(peers_in_use_);
    const threads::LockGuard lock(mutex_);
    for (Peer& each : peers_) {
        each.ending = each.ending || each.context == peer;
    }
    for (const std::unique_ptr<Record>& record : records_) {
        for (RecordedEvent& each : record->peers) {
            each.ending = each.ending || each.context == peer;
        }
    }
    peers_changed();
}

void CudaFences::after_peer_destroy(CUcontext peer, bool destroyed) {
    if (!had_peers_.load(std::memory_order_acquire)) {
        return;
    }
    const threads::LockGuard exclusive(peers_in_use_);
    const threads::LockGuard lock(mutex_);
    for (Peer& each : peers_) {
        each.ending = each.ending && each.context != peer;
    }
    for (const std::unique_ptr<Record>& record : records_) {
        for (RecordedEvent& each : record->peers) {
            each.ending = each.ending && each.context != peer;
        }
        std::erase_if(record->peers, [&](const RecordedEvent& each) {
            return each.context == peer && (destroyed || each.event == nullptr);
        });
    }
    if (destroyed) {
        std::erase_if(peers_, [peer](const Peer& each) { return each.context == peer; });
    }
    peers_changed();
}

void CudaFences::order_peer_behind(CUcontext peer, const Record& record) {
    bool ordered = true;
    {
        const CaptureGate::Shared gate(captures_);
        const PeersInUse in_use(*this);
        const auto order = [&](CUevent event) {
            ordered = ordered && !gate.capturing() &&
                      call_real(&Driver::cuCtxWaitEvent, peer, event) == CUDA_SUCCESS;
        };
        order(record.own);
        for (const RecordedEvent& each : record.peers) {
            if (!each.ending) {
                order(each.event);
            }
        }
    }
    if (!ordered) {
        wait_host(reinterpret_cast<Fence>(&record));
    }
}

}  // namespace memlab::interpose
