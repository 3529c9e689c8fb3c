#include "interpose/driver/cuda_fences.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "interpose/driver/capture_gate.hpp"
#include "interpose/driver/current_context.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/driver/sticky_errors.hpp"
#include "interpose/driver/work_clock.hpp"

namespace memlab::interpose {

using allocator::Fence;
using allocator::FenceState;
using allocator::StreamId;

namespace {
constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

// Off only in the test variant without fences (tests/gpu, race hunter).
#ifdef MEMLAB_WITHOUT_FENCES
constexpr bool fences = false;
#else
constexpr bool fences = true;
#endif

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

/// Creates an event in the context; null on failure.
CUresult make_event(CUcontext context, CUevent* event) {
    const CurrentContext current(context);
    const CUresult made =
        call_real(&Driver::cuEventCreate, event, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
    if (made != CUDA_SUCCESS) {
        *event = nullptr;
    }
    return made;
}
}  // namespace

struct CudaFences::Record {
    CUevent own = nullptr;             ///< in the context itself
    std::vector<RecordedEvent> peers;  ///< in the peers; accessed with PeersInUse held
    StreamId stream = 0;               ///< covers this stream only; 0: the whole context
    bool foreign = false;              ///< the stream is another context's; the event is in `peers`
    bool host_wait = false;            ///< no events: the host has to wait
    std::uint64_t peers_generation = 0;  ///< generation of the peer list that `peers` matches
    Time time;                           ///< work clock, read before recording
    std::uint32_t references = 0;
    bool spare = false;
    Record* next_spare = nullptr;
};

/// Shared lock that keeps peers alive during driver calls. Costs nothing until there is a peer.
class CudaFences::PeersInUse {
  public:
    explicit PeersInUse(CudaFences& fences) {
        if (fences.had_peers_.load(std::memory_order_acquire)) {
            lock_ = std::shared_lock(fences.peers_in_use_);
        }
    }
    bool held() const { return lock_.owns_lock(); }

  private:
    std::shared_lock<std::shared_mutex> lock_;
};

CudaFences::Record* CudaFences::to_record(Fence fence) {
    return reinterpret_cast<Record*>(fence);
}

CudaFences::CudaFences(CaptureGate& captures, CUcontext context, bool late)
    : captures_(captures), context_(context), idle_at_(late ? never : 0) {}

CudaFences::~CudaFences() = default;

bool CudaFences::idle_since(Time time) const {
    return time && *time == idle_at_.load(std::memory_order_relaxed);
}

// Fences complete in any order; keep the newest time. A single-stream fence says nothing about
// other streams.
void CudaFences::update_idle_time(const Record& record) {
    if (!record.time || record.stream != 0) {
        return;
    }
    std::uint64_t known = idle_at_.load(std::memory_order_relaxed);
    while ((known == never || known < *record.time) &&
           !idle_at_.compare_exchange_weak(known, *record.time, std::memory_order_relaxed)) {
    }
}

[[gnu::hot]] CUresult CudaFences::record(Fence* fence) noexcept {
    *fence = 0;
    const Time time = work_clock.now();
    if (!fences || idle_since(time)) {
        return CUDA_SUCCESS;
    }
    try {
        const CaptureGate::Shared gate(captures_);
        if (gate.capturing()) {
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // recording would invalidate the capture
        }
        const Driver* real = driver();
        if (real->cuCtxRecordEvent == nullptr || real->cuCtxWaitEvent == nullptr) {
            return fall_back_to_host_wait(CUDA_ERROR_NOT_SUPPORTED, time, fence);
        }
        const CUresult result = record_new(time, fence);
        return result == CUDA_SUCCESS ? result : fall_back_to_host_wait(result, time, fence);
    } catch (const std::bad_alloc&) {  // the pool defers the block and retries
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
}

// Several frees share a fence: the newest record covers all work that ticked by `time`, because its
// time was read before it was recorded and nothing was submitted since.
bool CudaFences::share(Record* newest, StreamId stream, Time time, Fence* fence) {
    if (!time || newest == nullptr || newest->time != time || newest->stream != stream) {
        return false;
    }
    ++newest->references;
    *fence = reinterpret_cast<Fence>(newest);
    return true;
}

// Call with mutex_ held. Records live as long as the context: before_peer_destroy() visits all of
// them.
CudaFences::Record* CudaFences::take_record(Record** spare) {
    Record* record = *spare;
    if (record == nullptr) {
        records_.push_back(std::make_unique<Record>());
        return records_.back().get();
    }
    *spare = record->next_spare;
    record->next_spare = nullptr;
    record->spare = false;
    return record;
}

// Call with mutex_ held.
void CudaFences::recycle(Record& record) {
    Record*& spare = record.stream != 0 ? spare_in_stream_ : spare_;
    record.host_wait = false;
    record.spare = true;
    record.next_spare = spare;
    spare = &record;
}

// Call with mutex_ held. On success the record becomes a fence held by the caller and the newest
// one that others may share; otherwise it is recycled.
CUresult CudaFences::publish(Record& record, CUresult recorded, Time time, Record** newest,
                             Fence* fence) {
    if (recorded != CUDA_SUCCESS) {
        recycle(record);
        return recorded;
    }
    record.time = time;
    record.references = 1;
    if (newest != nullptr) {
        *newest = &record;
    }
    *fence = reinterpret_cast<Fence>(&record);
    return CUDA_SUCCESS;
}

CUresult CudaFences::record_new(Time time, Fence* fence) {
    Record* record = nullptr;
    {
        const std::lock_guard lock(mutex_);
        if (share(newest_, 0, time, fence)) {
            return CUDA_SUCCESS;
        }
        record = take_record(&spare_);
    }
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (bool again = true; again;) {
        const PeersInUse in_use(*this);
        {
            const std::lock_guard lock(mutex_);
            again = !peers_.empty() && !in_use.held();  // a peer was added meanwhile
        }
        if (!again) {
            result = record_events(*record, in_use);
        }
    }
    const std::lock_guard lock(mutex_);
    return publish(*record, result, time, &newest_, fence);
}

// Records an event in the context and one in each peer; creates missing events.
CUresult CudaFences::record_events(Record& record, const PeersInUse& in_use) {
    if (record.own == nullptr) {
        if (const CUresult made = make_event(context_, &record.own); made != CUDA_SUCCESS) {
            return made;
        }
    }
    if (in_use.held()) {
        std::vector<RecordedEvent> wanted;
        std::uint64_t generation = 0;
        bool same = false;
        {
            const std::lock_guard lock(mutex_);
            same = record.peers_generation == peers_generation_;
            generation = peers_generation_;
            for (std::size_t i = 0; !same && i < peers_.size(); ++i) {
                wanted.push_back({peers_[i].context, nullptr, peers_[i].ending});
            }
        }
        for (RecordedEvent& each : wanted) {
            const auto known =
                std::find_if(record.peers.begin(), record.peers.end(),
                             [&](const RecordedEvent& old) { return old.context == each.context; });
            if (known != record.peers.end()) {
                each.event = known->event;
            }
            // A destroyed peer has no work left to wait for.
            if (each.event == nullptr && !each.ending) {
                make_event(each.context, &each.event);
            }
        }
        if (!same) {
            std::erase_if(wanted, [](const RecordedEvent& each) {
                return each.event == nullptr && !each.ending;
            });
            record.peers = std::move(wanted);
            record.peers_generation = generation;
        }
    }
    const CUresult result = call_real(&Driver::cuCtxRecordEvent, context_, record.own);
    if (in_use.held() && result == CUDA_SUCCESS) {
        for (const RecordedEvent& each : record.peers) {
            if (!each.ending) {
                call_real(&Driver::cuCtxRecordEvent, each.context, each.event);
            }
        }
    }
    return result;
}

namespace {

// Captures of other streams are not affected by work in this one.
bool is_outside_captures(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return call_real(&Driver::cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace

CUresult CudaFences::record_in(StreamId key, Fence* fence, bool* alone) noexcept {
    *fence = 0;
    *alone = true;
    const Time time = work_clock.now();
    if (!fences || idle_since(time)) {
        return CUDA_SUCCESS;
    }
    const CUstream stream = to_stream(key);
    try {
        const CaptureGate::Shared gate(captures_);
        if (gate.capturing() && !is_outside_captures(stream)) {
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        const RelaxedCapture relaxed(gate.capturing());
        {
            const std::lock_guard lock(mutex_);
            if (share(newest_in_stream_, key, time, fence)) {
                return CUDA_SUCCESS;
            }
        }
        CUcontext context = nullptr;
        const CUresult found = call_real(&Driver::cuStreamGetCtx, stream, &context);
        if (found == CUDA_ERROR_INVALID_HANDLE) {
            return found;
        }
        // Default streams of another context cannot be named from here.
        if (found == CUDA_SUCCESS && (context == context_ || is_stream_handle(key)) &&
            record_stream(key, stream, context, time, fence) == CUDA_SUCCESS) {
            return CUDA_SUCCESS;
        }
    } catch (const std::bad_alloc&) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    *alone = false;
    return record(fence);
}

// Records one event in one stream. `foreign`: the stream is another context's, so the event is
// created there.
CUresult CudaFences::record_stream(StreamId key, CUstream stream, CUcontext context, Time time,
                                   Fence* fence) {
    const bool foreign = context != context_;
    if (foreign) {
        had_peers_.store(true, std::memory_order_release);
    }
    const PeersInUse in_use(*this);
    Record* record = nullptr;
    {
        const std::lock_guard lock(mutex_);
        record = take_record(&spare_in_stream_);
        record->stream = key;
        record->foreign = foreign;
    }
    if (foreign) {
        std::erase_if(record->peers,
                      [&](const RecordedEvent& each) { return each.context != context; });
        record->peers.resize(1, {context, nullptr, false});
    }
    CUevent* event = foreign ? &record->peers.front().event : &record->own;
    CUresult result = *event == nullptr ? make_event(context, event) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        result = call_real(&Driver::cuEventRecord, *event, stream);
    }
    const std::lock_guard lock(mutex_);
    return publish(*record, result, time, &newest_in_stream_, fence);
}

namespace {

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
    const std::lock_guard lock(mutex_);
    Record* record = take_record(&spare_);
    record->host_wait = true;
    return publish(*record, CUDA_SUCCESS, time, nullptr, fence);
}

bool CudaFences::needs_host_wait(Fence fence) {
    return to_record(fence)->host_wait;
}

[[gnu::hot]] FenceState CudaFences::query(Fence fence) {
    const Record& record = *to_record(fence);
    if (idle_since(record.time)) {
        return FenceState::complete;
    }
    if (record.host_wait) {
        return FenceState::pending;
    }
    const CaptureGate::Shared gate(captures_);
    const RelaxedCapture relaxed(gate.capturing());
    const FenceState state = query_events(record);
    if (state == FenceState::complete) {
        update_idle_time(record);
    }
    return state;
}

FenceState CudaFences::query_events(const Record& record) {
    if (!record.foreign) {
        const CUresult result = call_real(&Driver::cuEventQuery, record.own);
        if (result != CUDA_SUCCESS) {
            return result == CUDA_ERROR_NOT_READY ? FenceState::pending : FenceState::failed;
        }
    }
    const PeersInUse in_use(*this);
    if (in_use.held() && (record.stream == 0 || record.foreign)) {
        for (const RecordedEvent& each : record.peers) {
            if (each.ending ||
                call_real(&Driver::cuEventQuery, each.event) == CUDA_ERROR_NOT_READY) {
                return FenceState::pending;
            }
        }
    }
    return FenceState::complete;
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
        const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    const auto order = [&](CUevent event) {
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
        const std::lock_guard lock(mutex_);
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
        const std::lock_guard lock(mutex_);
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

void CudaFences::wait_for_barriers() {
    Record* settled[2] = {};
    {
        const std::lock_guard lock(mutex_);
        settled[0] = std::exchange(barrier_, nullptr);
        // ordered_ stays: later frees rely on it to cover earlier ones.
        settled[1] = ordered_;
        if (ordered_ != nullptr) {
            ++ordered_->references;
        }
    }
    for (Record* each : settled) {
        if (each != nullptr) {
            wait_host(reinterpret_cast<Fence>(each));
            release(reinterpret_cast<Fence>(each));
        }
    }
}

bool CudaFences::barriers_complete() {
    Record* last[2] = {};
    {
        const std::lock_guard lock(mutex_);
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
    }
    return result;
}

// The context's own event lives as long as the fence. A peer cannot be destroyed while its event is
// waited for; the destruction would wait for the same work.
CUresult CudaFences::wait_for_events(const Record& record) {
    const RelaxedCapture relaxed(true);
    if (!record.foreign) {
        if (const CUresult result = call_real(&Driver::cuEventSynchronize, record.own);
            result != CUDA_SUCCESS) {
            return result;
        }
    }
    const PeersInUse in_use(*this);
    if (in_use.held() && (record.stream == 0 || record.foreign)) {
        for (const RecordedEvent& each : record.peers) {
            if (!each.ending) {
                call_real(&Driver::cuEventSynchronize, each.event);
            }
        }
    }
    return CUDA_SUCCESS;
}

CUresult CudaFences::wait_for_all(bool may_end_captures) {
    std::vector<Peer> peers;
    {
        const std::lock_guard lock(mutex_);
        peers = peers_;
    }
    CUresult result = wait_for_context(context_, may_end_captures);
    for (const Peer& peer : peers) {
        if (result == CUDA_SUCCESS && !peer.ending) {
            const CUresult waited = wait_for_context(peer.context, may_end_captures);
            result = may_end_captures ? result : waited;
        }
    }
    return result;
}

CUresult CudaFences::wait_for_context_and_peers() {
    return wait_for_all(!captures_.capturing());
}

[[gnu::hot]] void CudaFences::release(Fence fence) noexcept {
    Record* record = to_record(fence);
    const std::lock_guard lock(mutex_);
    if (--record->references != 0) {
        return;
    }
    if (newest_ == record) {
        newest_ = nullptr;
    }
    if (newest_in_stream_ == record) {
        newest_in_stream_ = nullptr;
    }
    recycle(*record);
}

bool CudaFences::idle() {
    Fence fence = 0;
    if (record(&fence) != CUDA_SUCCESS) {
        return false;
    }
    if (fence == 0) {
        return true;
    }
    const bool complete = query(fence) == FenceState::complete;
    release(fence);
    return complete;
}

void CudaFences::add_peer(CUcontext peer) {
    if (peer == nullptr || peer == context_ || !covers_peers) {
        return;
    }
    Record* behind[2] = {};
    had_peers_.store(true, std::memory_order_release);
    {
        const std::lock_guard lock(mutex_);
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

// Call with mutex_ held. Shared fences and idle times were valid for the previous set of contexts
// only.
void CudaFences::peers_changed() {
    ++peers_generation_;
    newest_ = nullptr;
    idle_at_.store(never, std::memory_order_relaxed);
}

void CudaFences::before_peer_destroy(CUcontext peer) {
    if (!had_peers_.load(std::memory_order_acquire)) {
        return;
    }
    const std::unique_lock exclusive(peers_in_use_);
    const std::lock_guard lock(mutex_);
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
    const std::unique_lock exclusive(peers_in_use_);
    const std::lock_guard lock(mutex_);
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

void CudaFences::after_context_destroy() {
    const std::lock_guard lock(mutex_);
    spare_ = nullptr;
    spare_in_stream_ = nullptr;
    std::erase_if(records_, [](const std::unique_ptr<Record>& record) { return record->spare; });
    records_.shrink_to_fit();
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
