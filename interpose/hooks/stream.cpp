// Streams: tracks captures, so that no call of memlab's falls into one.
#include "interpose/driver/current_context.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/measured_call.hpp"

namespace mi = memlab::interpose;
using mi::Driver;
using mi::Session;

namespace {

template <class Real>
CUresult begin_capture(CUstream stream, bool per_thread, CUstreamCaptureMode mode,
                       const Real& real) {
    mi::one_stream.give_up("a stream capture");
    return mi::hook(
        [&](Session& session) {
            return session.captures().begin(stream, per_thread, mi::stream_context(stream),
                                            mode == CU_STREAM_CAPTURE_MODE_RELAXED, real);
        },
        real);
}

bool still_capturing(CUstream stream, bool per_thread) {
    const CUstream queried = stream == nullptr && per_thread ? CU_STREAM_PER_THREAD : stream;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return mi::call_real(&Driver::cuStreamIsCapturing, queried, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

template <class Real>
CUresult end_capture(CUstream stream, bool per_thread, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            // A call by the wrong thread leaves the capture active; a failed capture ends here,
            // too.
            if ((result == CUDA_SUCCESS || !still_capturing(stream, per_thread)) &&
                session.captures().end(stream, per_thread)) {
                session.contexts().on_capture_ended();
            }
            return result;
        },
        real);
}

template <class Real>
CUresult destroy_stream(mi::Api api, CUstream stream, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            mi::one_stream.before_destroy(stream);
            const CUresult result =
                mi::measured(session, memlab::trace::LedgerKind::stream, api, real);
            if (result == CUDA_SUCCESS) {
                session.contexts().forget_stream(mi::stream_key(stream, false));
                if (session.captures().end(stream, false)) {
                    session.contexts().on_capture_ended();
                }
            }
            return result;
        },
        real);
}

}  // namespace

MEMLAB_EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
    return destroy_stream(mi::Api::cuStreamDestroy, stream,
                          mi::real_call(&Driver::cuStreamDestroy, stream));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream) {
    return destroy_stream(mi::Api::cuStreamDestroy_v2, stream,
                          mi::real_call(&Driver::cuStreamDestroy_v2, stream));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamBeginCapture(CUstream stream) {
    return begin_capture(stream, false, CU_STREAM_CAPTURE_MODE_GLOBAL,
                         mi::real_call(&Driver::cuStreamBeginCapture, stream));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamBeginCapture_ptsz(CUstream stream) {
    return begin_capture(stream, true, CU_STREAM_CAPTURE_MODE_GLOBAL,
                         mi::real_call(&Driver::cuStreamBeginCapture_ptsz, stream));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return begin_capture(stream, false, mode,
                         mi::real_call(&Driver::cuStreamBeginCapture_v2, stream, mode));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream stream,
                                                            CUstreamCaptureMode mode) {
    return begin_capture(stream, true, mode,
                         mi::real_call(&Driver::cuStreamBeginCapture_v2_ptsz, stream, mode));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                                           const CUgraphNode* dependencies,
                                                           const CUgraphEdgeData* edges,
                                                           size_t count, CUstreamCaptureMode mode) {
    return begin_capture(stream, false, mode,
                         mi::real_call(&Driver::cuStreamBeginCaptureToGraph, stream, graph,
                                       dependencies, edges, count, mode));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                                const CUgraphNode* dependencies,
                                                                const CUgraphEdgeData* edges,
                                                                size_t count,
                                                                CUstreamCaptureMode mode) {
    return begin_capture(stream, true, mode,
                         mi::real_call(&Driver::cuStreamBeginCaptureToGraph_ptsz, stream, graph,
                                       dependencies, edges, count, mode));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    return end_capture(stream, false, mi::real_call(&Driver::cuStreamEndCapture, stream, graph));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
    return end_capture(stream, true,
                       mi::real_call(&Driver::cuStreamEndCapture_ptsz, stream, graph));
}

MEMLAB_EXPORT CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    // Passed through: the mode is per thread, and memlab's own calls restore it.
    return mi::call_real(&Driver::cuThreadExchangeStreamCaptureMode, mode);
}
