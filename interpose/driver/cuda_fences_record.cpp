// Fences from creation to release: recorded, shared between frees, queried, returned.
#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "interpose/driver/capture_gate.hpp"
#include "interpose/driver/current_context.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/fence_record.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/driver/work_clock.hpp"

namespace memlab::interpose {

using allocator::Fence;
using allocator::FenceState;
using allocator::StreamId;

namespace {

// Off only in the test variant without fences (tests/gpu, race hunter).
#ifdef MEMLAB_WITHOUT_FENCES
constexpr bool fences = false;
#else
constexpr bool fences = true;
#endif

/// Creates an event in the context; null on failure.
CUresult make_event(CUcontext context, bool blocking, CUevent* event) {
    const CurrentContext current(context);
    const auto way = static_cast<unsigned>(blocking ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DEFAULT);
    const unsigned flags = CU_EVENT_DISABLE_TIMING | way;
    const CUresult made = call_real(&Driver::cuEventCreate, event, flags);
    if (made != CUDA_SUCCESS) {
        *event = nullptr;
    }
    return made;
}
}  // namespace

CudaFences::Record* CudaFences::to_record(Fence fence) {
    return reinterpret_cast<Record*>(fence);
}

CudaFences::CudaFences(CaptureGate& captures, CUcontext context, bool late)
    : captures_(captures),
      context_(context),
      idle_at_(late ? never_idle : 0),
      shown_at_(late ? never_idle : 0) {}

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
    while ((known == never_idle || known < *record.time) &&
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
        lacked_memory_.store(true, std::memory_order_relaxed);
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

// Records live as long as the context: before_peer_destroy() visits all of them.
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

void CudaFences::recycle(Record& record) {
    Record*& spare = record.stream != 0 ? spare_in_stream_ : spare_;
    record.host_wait = false;
    record.spare = true;
    record.next_spare = spare;
    spare = &record;
}

// On success the record becomes a fence held by the caller and the newest one that others may
// share; otherwise it is recycled.
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

// Drops the record's events if the context's flags are others than when these were made. `in_use`:
// with PeersInUse held, or without peers.
void CudaFences::fit_events(Record& record, bool in_use) {
    if (record.own == nullptr && record.peers.empty()) {
        record.blocking = waits_asleep();
        return;
    }
    const bool blocking = blocking_.load(std::memory_order_relaxed);
    if (record.blocking == blocking || !in_use) {
        return;
    }
    if (record.own != nullptr) {
        call_real(&Driver::cuEventDestroy_v2, std::exchange(record.own, nullptr));
    }
    for (const RecordedEvent& each : record.peers) {
        if (each.event != nullptr && !each.ending) {
            call_real(&Driver::cuEventDestroy_v2, each.event);
        }
    }
    record.peers.clear();
    record.peers_generation = 0;
    record.blocking = blocking;
}

CUresult CudaFences::record_new(Time time, Fence* fence) {
    Record* record = nullptr;
    {
        const threads::LockGuard lock(mutex_);
        if (share(newest_, 0, time, fence)) {
            return CUDA_SUCCESS;
        }
        record = take_record(&spare_);
    }
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (bool again = true; again;) {
        const PeersInUse in_use(*this);
        {
            const threads::LockGuard lock(mutex_);
            again = !peers_.empty() && !in_use.held();  // a peer was added meanwhile
        }
        if (!again) {
            result = record_events(*record, in_use);
        }
    }
    const threads::LockGuard lock(mutex_);
    return publish(*record, result, time, &newest_, fence);
}

// Records an event in the context and one in each peer; creates missing events.
CUresult CudaFences::record_events(Record& record, const PeersInUse& in_use) {
    fit_events(record, in_use.held() || record.peers.empty());
    if (record.own == nullptr) {
        if (const CUresult made = make_event(context_, record.blocking, &record.own);
            made != CUDA_SUCCESS) {
            return made;
        }
    }
    if (in_use.held()) {
        std::vector<RecordedEvent> wanted;
        std::uint64_t generation = 0;
        bool same = false;
        {
            const threads::LockGuard lock(mutex_);
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
                make_event(each.context, record.blocking, &each.event);
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
            const threads::LockGuard lock(mutex_);
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
        lacked_memory_.store(true, std::memory_order_relaxed);
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
        const threads::LockGuard lock(mutex_);
        record = take_record(&spare_in_stream_);
        record->stream = key;
        record->foreign = foreign;
    }
    fit_events(*record, in_use.held() || record->peers.empty());
    if (foreign) {
        std::erase_if(record->peers,
                      [&](const RecordedEvent& each) { return each.context != context; });
        record->peers.resize(1, {context, nullptr, false});
    }
    CUevent* event = foreign ? &record->peers.front().event : &record->own;
    CUresult result =
        *event == nullptr ? make_event(context, record->blocking, event) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        result = call_real(&Driver::cuEventRecord, *event, stream);
    }
    const threads::LockGuard lock(mutex_);
    return publish(*record, result, time, &newest_in_stream_, fence);
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

[[gnu::hot]] void CudaFences::release(Fence fence) noexcept {
    Record* record = to_record(fence);
    const threads::LockGuard lock(mutex_);
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

// The time is read first. Only where the device was idle since then all that was submitted by then
// is shown; else the next free asks again.
void CudaFences::show_output() {
    const Time time = work_clock.now();
    const bool complete = idle_since(time);
    const CaptureGate::Shared gate(captures_);
    const RelaxedCapture relaxed(gate.capturing());
    const CUevent event = never_recorded_event();
    if (event != nullptr && call_real(&Driver::cuEventSynchronize, event) == CUDA_SUCCESS &&
        complete) {
        shown_at_.store(*time, std::memory_order_relaxed);
    }
}

// An event of its own: those of records may be recorded again meanwhile, and would be waited for.
CUevent CudaFences::never_recorded_event() {
    const threads::LockGuard lock(mutex_);
    if (never_recorded_ == nullptr) {
        make_event(context_, false, &never_recorded_);
    }
    return never_recorded_;
}

void CudaFences::after_context_destroy() {
    const threads::LockGuard lock(mutex_);
    never_recorded_ = nullptr;
    spare_ = nullptr;
    spare_in_stream_ = nullptr;
    std::erase_if(records_, [](const std::unique_ptr<Record>& record) { return record->spare; });
    records_.shrink_to_fit();
}

}  // namespace memlab::interpose
