// Streams: tracks captures, so that no call of memlab's falls into one.
#include "interpose/driver/current_context.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/measured_call.hpp"
#include "interpose/memory/graph_memory.hpp"
#include "interpose/process/unknown_functions.hpp"

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

// The nodes of the graph stay, and with them the memory that its allocations have.
template <class Real>
CUresult begin_recapture(CUstream stream, bool per_thread, CUstreamCaptureMode mode,
                         const Real& real) {
    mi::graph_memory().recaptures();
    return begin_capture(stream, per_thread, mode, real);
}

// Such a capture is executed by a graphics API, which memlab does not see. What it forbids to other
// calls is not documented: nothing is refused that the driver would not refuse.
template <class Real>
CUresult begin_graphics_capture(const char* name, CUstream stream, bool per_thread,
                                const Real& real) {
    mi::on_unfollowed_call(name);
    return begin_capture(stream, per_thread, CU_STREAM_CAPTURE_MODE_RELAXED, real);
}

template <class Real>
CUresult destroy_stream(mi::Api api, CUstream stream, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            mi::one_stream.before_destroy(stream);
            const CUresult result = mi::measured(
                session, {.kind = memlab::trace::LedgerKind::stream, .returns = true}, api, real);
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

MEMLAB_EXPORT CUresult CUDAAPI cuStreamBeginRecaptureToGraph(CUstream stream,
                                                             CUstreamCaptureMode mode,
                                                             CUgraph graph,
                                                             CUgraphRecaptureCallback callback,
                                                             void* user) {
    return begin_recapture(
        stream, false, mode,
        mi::real_call(&Driver::cuStreamBeginRecaptureToGraph, stream, mode, graph, callback, user));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamBeginRecaptureToGraph_ptsz(CUstream stream,
                                                                  CUstreamCaptureMode mode,
                                                                  CUgraph graph,
                                                                  CUgraphRecaptureCallback callback,
                                                                  void* user) {
    return begin_recapture(stream, true, mode,
                           mi::real_call(&Driver::cuStreamBeginRecaptureToGraph_ptsz, stream, mode,
                                         graph, callback, user));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamBeginCaptureToCig(CUstream stream,
                                                         CUstreamCigCaptureParams* parameters) {
    return begin_graphics_capture(
        "cuStreamBeginCaptureToCig", stream, false,
        mi::real_call(&Driver::cuStreamBeginCaptureToCig, stream, parameters));
}

MEMLAB_EXPORT CUresult CUDAAPI
cuStreamBeginCaptureToCig_ptsz(CUstream stream, CUstreamCigCaptureParams* parameters) {
    return begin_graphics_capture(
        "cuStreamBeginCaptureToCig", stream, true,
        mi::real_call(&Driver::cuStreamBeginCaptureToCig_ptsz, stream, parameters));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamEndCaptureToCig(CUstream stream) {
    return end_capture(stream, false, mi::real_call(&Driver::cuStreamEndCaptureToCig, stream));
}

MEMLAB_EXPORT CUresult CUDAAPI cuStreamEndCaptureToCig_ptsz(CUstream stream) {
    return end_capture(stream, true, mi::real_call(&Driver::cuStreamEndCaptureToCig_ptsz, stream));
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
