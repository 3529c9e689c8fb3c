#include "interpose/driver/capture_gate.hpp"

#include <algorithm>
#include <new>

#include "profiler/thread_id.hpp"

namespace memlab::interpose {

CaptureGate::Key CaptureGate::make_key(CUstream stream, bool per_thread) {
    if (stream == CU_STREAM_PER_THREAD || (stream == nullptr && per_thread)) {
        return {CU_STREAM_PER_THREAD, profiler::thread_id()};
    }
    return {stream, 0};
}

void CaptureGate::update_count() {
    const int lost = lost_one_ ? 1 : 0;
    strict_.store(
        static_cast<int>(std::count_if(streams_.begin(), streams_.end(),
                                       [](const auto& each) { return !each.second.relaxed; })) +
            lost,
        std::memory_order_release);
    active_.store(static_cast<int>(streams_.size()) + lost, std::memory_order_release);
}

void CaptureGate::insert(CUstream stream, bool per_thread, Capture capture) noexcept {
    const threads::LockGuard lock(streams_mutex_);
    try {
        streams_.insert_or_assign(make_key(stream, per_thread), capture);
    } catch (const std::bad_alloc&) {
        lost_one_ = true;
    }
    update_count();
}

bool CaptureGate::end(CUstream stream, bool per_thread) {
    const threads::LockGuard lock(streams_mutex_);
    if (streams_.erase(make_key(stream, per_thread)) == 0) {
        return false;
    }
    update_count();
    return !capturing();
}

bool CaptureGate::end_all(CUcontext context) {
    const threads::LockGuard lock(streams_mutex_);
    if (std::erase_if(streams_, [context](const auto& each) {
            return each.second.context == context;
        }) == 0) {
        return false;
    }
    update_count();
    return !capturing();
}

}  // namespace memlab::interpose
