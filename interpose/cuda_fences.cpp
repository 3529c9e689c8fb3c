#include "interpose/cuda_fences.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "interpose/capture_gate.hpp"
#include "interpose/current_context.hpp"
#include "interpose/driver.hpp"
#include "interpose/one_stream.hpp"
#include "interpose/relaxed_capture.hpp"
#include "interpose/work_clock.hpp"

namespace memlab::interpose {

using allocator::Fence;
using allocator::FenceState;

namespace {
constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

// Off only in the variant that shows what the race hunter finds without fences (tests/gpu).
#ifdef MEMLAB_WITHOUT_FENCES
constexpr bool fences = false;
#else
constexpr bool fences = true;
#endif

// Off only in the variant that shows what the race hunter finds when a second stream begins without
// any order (tests/gpu).
#ifdef MEMLAB_WITHOUT_ORDER
constexpr bool orders_second_stream = false;
#else
constexpr bool orders_second_stream = true;
#endif
}  // namespace

struct CudaFences::Record {
    std::vector<RecordedEvent> events;   ///< one in the context itself, first, and one in each peer
    std::uint64_t peers_generation = 0;  ///< of the peers that `events` is for
    std::optional<std::uint64_t> time;   ///< of the work clock, read before the record
    std::uint32_t references = 0;
    Record* next_spare = nullptr;
};

CudaFences::Record* CudaFences::record_of(Fence fence) {
    return reinterpret_cast<Record*>(fence);
}

CudaFences::CudaFences(CaptureGate& captures, CUcontext context, bool late)
    : captures_(captures), context_(context), idle_at_(late ? never : 0) {}

bool CudaFences::idle_since(std::optional<std::uint64_t> time) const {
    return time && *time == idle_at_.load(std::memory_order_relaxed);
}

// Times of completed fences come in any order; the newest counts.
void CudaFences::note_idle(const Record& record) {
    if (!record.time) {
        return;
    }
    std::uint64_t known = idle_at_.load(std::memory_order_relaxed);
    while ((known == never || known < *record.time) &&
           !idle_at_.compare_exchange_weak(known, *record.time, std::memory_order_relaxed)) {
    }
}

[[gnu::hot]] CUresult CudaFences::record(Fence* fence) noexcept {
    *fence = 0;
    const std::optional<std::uint64_t> time = work_clock.now();
    if (!fences || idle_since(time)) {
        return CUDA_SUCCESS;
    }
    const CaptureGate::Shared gate(captures_);
    if (gate.capturing()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // recording would end the capture
    }
    const Driver* real = driver();
    if (real->cuCtxRecordEvent == nullptr || real->cuCtxWaitEvent == nullptr) {
        return synchronize_all();
    }
    try {
        return record_new(time, fence);
    } catch (const std::bad_alloc&) {  // the pool keeps the block back and tries again later
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

// One with an event in each context that it must cover. Those of the time before the last change of
// peers are dropped with what events they had: contexts may be gone, and such changes are rare.
CUresult CudaFences::spare_record(std::unique_ptr<Record>* record) {
    std::vector<CUcontext> contexts;
    std::uint64_t generation = 0;
    {
        const std::lock_guard lock(mutex_);
        while (spare_ != nullptr) {
            std::unique_ptr<Record> spare(spare_);
            spare_ = spare->next_spare;
            if (spare->peers_generation == peers_generation_) {
                *record = std::move(spare);
                return CUDA_SUCCESS;
            }
        }
        contexts.reserve(1 + peers_.size());
        contexts.push_back(context_);
        contexts.insert(contexts.end(), peers_.begin(), peers_.end());
        generation = peers_generation_;
    }
    auto made = std::make_unique<Record>();
    made->events.reserve(contexts.size());
    made->peers_generation = generation;
    for (const CUcontext context : contexts) {
        RecordedEvent recorded{context, nullptr};
        const CurrentContext current(context);
        const CUresult created = call_real(&Driver::cuEventCreate, &recorded.event,
                                           static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
        if (created == CUDA_SUCCESS) {
            made->events.push_back(recorded);
        } else if (context == context_) {
            return created;
        }
        // A peer context that is gone has no work left to wait for.
    }
    *record = std::move(made);
    return CUDA_SUCCESS;
}

// Where several frees share a fence: the newest record still stands for everything that ticked,
// since its time was read before it was recorded and nothing ticked since.
CUresult CudaFences::record_new(std::optional<std::uint64_t> time, Fence* fence) {
    if (time) {
        const std::lock_guard lock(mutex_);
        if (newest_ != nullptr && newest_->time == time) {
            ++newest_->references;
            *fence = reinterpret_cast<Fence>(newest_);
            return CUDA_SUCCESS;
        }
    }
    std::unique_ptr<Record> record;
    CUresult result = spare_record(&record);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (const RecordedEvent& recorded : record->events) {
        const CUresult answer =
            call_real(&Driver::cuCtxRecordEvent, recorded.context, recorded.event);
        if (recorded.context == context_) {
            result = answer;
        }
        if (result != CUDA_SUCCESS) {
            break;
        }
    }
    {
        const std::lock_guard lock(mutex_);
        if (result == CUDA_SUCCESS) {
            record->time = time;
            record->references = 1;
            newest_ = record.release();
            *fence = reinterpret_cast<Fence>(newest_);
            return result;
        }
        record->next_spare = spare_;
        spare_ = record.release();
    }
    const bool unavailable = result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_FOUND;
    return unavailable ? synchronize_all() : result;
}

// What plain CUDA does in every cudaFree: wait for the device.
CUresult CudaFences::synchronize_all() {
    std::vector<CUcontext> contexts{context_};
    {
        const std::lock_guard lock(mutex_);
        contexts.insert(contexts.end(), peers_.begin(), peers_.end());
    }
    CUresult result = CUDA_SUCCESS;
    for (const CUcontext context : contexts) {
        const CurrentContext current(context);
        const CUresult answer = call_real(&Driver::cuCtxSynchronize);
        if (context == context_) {
            result = answer;
        }
    }
    return result;
}

[[gnu::hot]] FenceState CudaFences::query(Fence fence) {
    const Record& record = *record_of(fence);
    if (idle_since(record.time)) {
        return FenceState::complete;
    }
    const CaptureGate::Shared gate(captures_);
    const RelaxedCapture relaxed(gate.capturing());
    for (const RecordedEvent& recorded : record.events) {
        const CUresult result = call_real(&Driver::cuEventQuery, recorded.event);
        if (result == CUDA_ERROR_NOT_READY) {
            return FenceState::pending;
        }
        if (result != CUDA_SUCCESS && recorded.context == context_) {
            return FenceState::failed;
        }
    }
    note_idle(record);
    return FenceState::complete;
}

CUresult CudaFences::wait_device(Fence fence) {
    if (const CUresult result = order_behind(*record_of(fence)); result != CUDA_SUCCESS) {
        return result;
    }
    Record* earlier = nullptr;
    {
        const std::lock_guard lock(mutex_);
        earlier = std::exchange(barrier_, record_of(fence));
        ++barrier_->references;
    }
    if (earlier != nullptr) {
        release(reinterpret_cast<Fence>(earlier));
    }
    return CUDA_SUCCESS;
}

// A peer context that is gone submits nothing.
CUresult CudaFences::order_behind(const Record& record) {
    const CaptureGate::Shared gate(captures_);
    if (gate.capturing()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    const std::lock_guard lock(mutex_);
    for (const RecordedEvent& recorded : record.events) {
        const CUresult result = call_real(&Driver::cuCtxWaitEvent, context_, recorded.event);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        for (const CUcontext peer : peers_) {
            call_real(&Driver::cuCtxWaitEvent, peer, recorded.event);
        }
    }
    return CUDA_SUCCESS;
}

// By time: frees of several threads come here in any order, and a fence stands for all work that
// had ticked by its time.
[[gnu::hot]] bool CudaFences::ordered_behind(Fence fence) {
    Record* record = record_of(fence);
    Record* earlier = nullptr;
    {
        const std::lock_guard lock(mutex_);
        if (!record->time || !one_stream.orders_all()) {
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

void CudaFences::settle_barrier() {
    Record* settled[2] = {};
    {
        const std::lock_guard lock(mutex_);
        settled[0] = std::exchange(barrier_, nullptr);
        // The one stream's stays: later frees do not tell what came before them.
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

// Without the gate: the device may be waiting for work that another thread will only submit after
// it began a capture.
CUresult CudaFences::wait_host(Fence fence) {
    const RelaxedCapture relaxed(true);
    const Record& record = *record_of(fence);
    for (const RecordedEvent& recorded : record.events) {
        const CUresult result = call_real(&Driver::cuEventSynchronize, recorded.event);
        if (result != CUDA_SUCCESS && recorded.context == context_) {
            return result;
        }
    }
    note_idle(record);
    return CUDA_SUCCESS;
}

[[gnu::hot]] void CudaFences::release(Fence fence) noexcept {
    Record* record = record_of(fence);
    const std::lock_guard lock(mutex_);
    if (--record->references != 0) {
        return;
    }
    if (newest_ == record) {
        newest_ = nullptr;
    }
    record->next_spare = spare_;
    spare_ = record;
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

void CudaFences::set_peer(CUcontext peer, bool enabled) {
    if (peer == context_) {
        return;
    }
    Record* behind[2] = {};
    {
        const std::lock_guard lock(mutex_);
        const bool known = std::find(peers_.begin(), peers_.end(), peer) != peers_.end();
        if (known == enabled) {
            return;
        }
        if (enabled) {
            peers_.push_back(peer);
            behind[0] = barrier_;
            behind[1] = ordered_;
            for (Record* each : behind) {
                if (each != nullptr) {
                    ++each->references;
                }
            }
        } else {
            std::erase(peers_, peer);
        }
        // What was known of the device was known of the old set of contexts.
        ++peers_generation_;
        newest_ = nullptr;
        idle_at_.store(never, std::memory_order_relaxed);
    }
    for (Record* each : behind) {
        if (each != nullptr) {
            order_peer_behind(peer, *each);
            release(reinterpret_cast<Fence>(each));
        }
    }
}

void CudaFences::order_peer_behind(CUcontext peer, const Record& record) {
    bool ordered = true;
    {
        const CaptureGate::Shared gate(captures_);
        for (const RecordedEvent& recorded : record.events) {
            ordered = ordered && !gate.capturing() &&
                      call_real(&Driver::cuCtxWaitEvent, peer, recorded.event) == CUDA_SUCCESS;
        }
    }
    if (!ordered) {
        wait_host(reinterpret_cast<Fence>(&record));
    }
}

}  // namespace memlab::interpose
