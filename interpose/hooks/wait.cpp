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
template <class... Arguments>
CUresult wait(CUresult (*Driver::*real)(Arguments...), Arguments... arguments) {
    if (!with_recorder([](Recorder& recorder) { return recorder.before_waiting(); })) {
        const CUresult result = mi::call_real(real, arguments...);
        sample_after(result);
        return result;
    }
    const std::uint64_t begin = memlab::profiler::monotonic_ns();
    const CUresult result = mi::call_real(real, arguments...);
    const std::uint64_t waited = memlab::profiler::monotonic_ns() - begin;
    with_recorder([waited](Recorder& recorder) {
        recorder.after_waiting(waited);
        return true;
    });
    sample_after(result);
    return result;
}

}  // namespace

MEMLAB_EXPORT CUresult CUDAAPI cuCtxSynchronize() {
    return wait(&Driver::cuCtxSynchronize);
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext context) {
    return wait(&Driver::cuCtxSynchronize_v2, context);
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
    return wait(&Driver::cuStreamSynchronize, stream);
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream stream) {
    return wait(&Driver::cuStreamSynchronize_ptsz, stream);
}

MEMLAB_EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent event) {
    return wait(&Driver::cuEventSynchronize, event);
}

// Passed through: call_real() notices sticky errors.

MEMLAB_EXPORT CUresult CUDAAPI cuStreamQuery(CUstream stream) {
    return mi::call_real(&Driver::cuStreamQuery, stream);
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamQuery_ptsz(CUstream stream) {
    return mi::call_real(&Driver::cuStreamQuery_ptsz, stream);
}

MEMLAB_EXPORT CUresult CUDAAPI cuEventQuery(CUevent event) {
    return mi::call_real(&Driver::cuEventQuery, event);
}

MEMLAB_EXPORT CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
    return mi::call_real(&Driver::cuEventRecord, event, stream);
}

MEMLAB_EXPORT CUresult CUDAAPI cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return mi::call_real(&Driver::cuEventRecord_ptsz, event, stream);
}

MEMLAB_EXPORT CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream,
                                                      unsigned int flags) {
    return mi::call_real(&Driver::cuEventRecordWithFlags, event, stream, flags);
}

MEMLAB_EXPORT CUresult CUDAAPI cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream,
                                                           unsigned int flags) {
    return mi::call_real(&Driver::cuEventRecordWithFlags_ptsz, event, stream, flags);
}

MEMLAB_EXPORT CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
    return mi::call_real(&Driver::cuEventElapsedTime, milliseconds, from, to);
}

MEMLAB_EXPORT CUresult CUDAAPI cuEventElapsedTime_v2(float* milliseconds, CUevent from,
                                                     CUevent to) {
    return mi::call_real(&Driver::cuEventElapsedTime_v2, milliseconds, from, to);
}
