#include "interpose/capture_gate.hpp"

#include "profiler/thread_id.hpp"

namespace memlab::interpose {

CaptureGate::Key CaptureGate::key_of(CUstream stream, bool per_thread) {
    if (stream == CU_STREAM_PER_THREAD || (stream == nullptr && per_thread)) {
        return {CU_STREAM_PER_THREAD, profiler::thread_id()};
    }
    return {stream, 0};
}

void CaptureGate::insert(CUstream stream, bool per_thread) {
    const std::lock_guard lock(streams_mutex_);
    streams_.insert(key_of(stream, per_thread));
    active_.store(static_cast<int>(streams_.size()), std::memory_order_release);
}

bool CaptureGate::end(CUstream stream, bool per_thread) {
    const std::lock_guard lock(streams_mutex_);
    if (streams_.erase(key_of(stream, per_thread)) == 0) {
        return false;
    }
    active_.store(static_cast<int>(streams_.size()), std::memory_order_release);
    return streams_.empty();
}

bool CaptureGate::end_all() {
    const std::lock_guard lock(streams_mutex_);
    const bool any = !streams_.empty();
    streams_.clear();
    active_.store(0, std::memory_order_release);
    return any;
}

}  // namespace memlab::interpose
