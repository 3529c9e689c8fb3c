#include "interpose/driver/capture_gate.hpp"

#include "profiler/thread_id.hpp"

namespace memlab::interpose {

CaptureGate::Key CaptureGate::key_of(CUstream stream, bool per_thread) {
    if (stream == CU_STREAM_PER_THREAD || (stream == nullptr && per_thread)) {
        return {CU_STREAM_PER_THREAD, profiler::thread_id()};
    }
    return {stream, 0};
}

// Under the lock of the streams.
void CaptureGate::count() {
    active_.store(static_cast<int>(streams_.size()), std::memory_order_release);
}

void CaptureGate::insert(CUstream stream, bool per_thread, CUcontext context) {
    const std::lock_guard lock(streams_mutex_);
    streams_.insert_or_assign(key_of(stream, per_thread), context);
    count();
}

bool CaptureGate::end(CUstream stream, bool per_thread) {
    const std::lock_guard lock(streams_mutex_);
    if (streams_.erase(key_of(stream, per_thread)) == 0) {
        return false;
    }
    count();
    return streams_.empty();
}

bool CaptureGate::end_all_of(CUcontext context) {
    const std::lock_guard lock(streams_mutex_);
    if (std::erase_if(streams_, [context](const auto& each) { return each.second == context; }) ==
        0) {
        return false;
    }
    count();
    return streams_.empty();
}

}  // namespace memlab::interpose
