// Synchronizing calls: the recorder aggregates pending events while the program waits for the
// device anyway. That is free unless the device finishes sooner; the recorder then does it less
// often. After them the device is mostly idle, and a sample of its used memory is cheap: what was
// loaded for the work shows there.
#include <cstdint>

#include "interpose/hooks/hook.hpp"
#include "profiler/clock.hpp"
#include "profiler/recorder.hpp"

namespace mi = memlab::interpose;
using memlab::profiler::Recorder;
using mi::Driver;
using mi::Session;

namespace {

template <class Use>
bool with_session(Use use) {
    const mi::InsideMemlab inside;
    Session* const session = inside.nested() ? nullptr : Session::current();
    return session != nullptr && use(*session);
}

template <class Use>
bool with_recorder(Use use) {
    return with_session([use](Session& session) {
        return session.recorder() != nullptr && use(*session.recorder());
    });
}

void sample_after(CUresult result) {
    if (result == CUDA_SUCCESS) {
        with_session([](Session& session) {
            session.ledger().sample_if_due();
            return true;
        });
    }
}

// The real call is made outside memlab: a profiler's callback in it may allocate.
constexpr auto wait_for_device = [](mi::Hooked, const auto& real, auto...) {
    if (!with_recorder([](Recorder& recorder) { return recorder.before_waiting(); })) {
        const CUresult result = real();
        sample_after(result);
        return result;
    }
    const std::uint64_t begin = memlab::profiler::monotonic_ns();
    const CUresult result = real();
    const std::uint64_t waited = memlab::profiler::monotonic_ns() - begin;
    with_recorder([waited](Recorder& recorder) {
        recorder.after_waiting(waited);
        return true;
    });
    sample_after(result);
    return result;
};

[[gnu::used]] void export_waiting_functions() {
    MEMLAB_EXPORT_HOOK(cuCtxSynchronize, wait_for_device);
    MEMLAB_EXPORT_HOOK(cuCtxSynchronize_v2, wait_for_device);
    MEMLAB_EXPORT_HOOK(cuStreamSynchronize, wait_for_device);
    MEMLAB_EXPORT_HOOK(cuStreamSynchronize_ptsz, wait_for_device);
    MEMLAB_EXPORT_HOOK(cuEventSynchronize, wait_for_device);

    MEMLAB_EXPORT_PASSED(cuStreamQuery);
    MEMLAB_EXPORT_PASSED(cuStreamQuery_ptsz);
    MEMLAB_EXPORT_PASSED(cuEventQuery);
    MEMLAB_EXPORT_PASSED(cuEventRecord);
    MEMLAB_EXPORT_PASSED(cuEventRecord_ptsz);
    MEMLAB_EXPORT_PASSED(cuEventRecordWithFlags);
    MEMLAB_EXPORT_PASSED(cuEventRecordWithFlags_ptsz);
    MEMLAB_EXPORT_PASSED(cuEventElapsedTime);
    MEMLAB_EXPORT_PASSED(cuEventElapsedTime_v2);
}

}  // namespace
