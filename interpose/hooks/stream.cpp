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

void find_mode(CUstreamCaptureMode* mode, CUstreamCaptureMode argument) {
    *mode = argument;
}
template <class Other>
void find_mode(CUstreamCaptureMode* /*mode*/, const Other& /*other*/) {}

constexpr auto capture_stream = [](mi::Hooked hooked, const auto& real, CUstream stream,
                                   auto... arguments) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;  // the oldest function has none
    (find_mode(&mode, arguments), ...);
    return begin_capture(stream, hooked.per_thread, mode, real);
};

// The nodes of the graph stay, and with them the memory that its allocations have.
constexpr auto recapture_stream = [](mi::Hooked hooked, const auto& real, CUstream stream,
                                     CUstreamCaptureMode mode, auto...) {
    mi::graph_memory().recaptures();
    return begin_capture(stream, hooked.per_thread, mode, real);
};

// Such a capture is executed by a graphics API, which memlab does not see. What it forbids to other
// calls is not documented: nothing is refused that the driver would not refuse.
constexpr auto capture_for_graphics = [](mi::Hooked hooked, const auto& real, CUstream stream,
                                         auto...) {
    mi::on_unfollowed_call("cuStreamBeginCaptureToCig");
    return begin_capture(stream, hooked.per_thread, CU_STREAM_CAPTURE_MODE_RELAXED, real);
};

constexpr auto end_capture = [](mi::Hooked hooked, const auto& real, CUstream stream, auto...) {
    return mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            // A call by the wrong thread leaves the capture active; a failed capture ends here,
            // too.
            if ((result == CUDA_SUCCESS || !still_capturing(stream, hooked.per_thread)) &&
                session.captures().end(stream, hooked.per_thread)) {
                session.contexts().on_capture_ended();
            }
            return result;
        },
        real);
};

constexpr auto destroy_stream = [](mi::Hooked hooked, const auto& real, CUstream stream) {
    return mi::hook(
        [&](Session& session) {
            mi::one_stream.before_destroy(stream);
            const CUresult result =
                mi::measured(session, {.kind = memlab::trace::LedgerKind::stream, .returns = true},
                             hooked.api, real);
            if (result == CUDA_SUCCESS) {
                session.contexts().forget_stream(mi::stream_key(stream, false));
                if (session.captures().end(stream, false)) {
                    session.contexts().on_capture_ended();
                }
            }
            return result;
        },
        real);
};

[[gnu::used]] void export_stream_functions() {
    MEMLAB_EXPORT_HOOK(cuStreamDestroy, destroy_stream);
    MEMLAB_EXPORT_HOOK(cuStreamDestroy_v2, destroy_stream);
    MEMLAB_EXPORT_HOOK(cuStreamBeginCapture, capture_stream);
    MEMLAB_EXPORT_HOOK(cuStreamBeginCapture_ptsz, capture_stream);
    MEMLAB_EXPORT_HOOK(cuStreamBeginCapture_v2, capture_stream);
    MEMLAB_EXPORT_HOOK(cuStreamBeginCapture_v2_ptsz, capture_stream);
    MEMLAB_EXPORT_HOOK(cuStreamBeginCaptureToGraph, capture_stream);
    MEMLAB_EXPORT_HOOK(cuStreamBeginCaptureToGraph_ptsz, capture_stream);
    MEMLAB_EXPORT_HOOK(cuStreamBeginRecaptureToGraph, recapture_stream);
    MEMLAB_EXPORT_HOOK(cuStreamBeginRecaptureToGraph_ptsz, recapture_stream);
    MEMLAB_EXPORT_HOOK(cuStreamBeginCaptureToCig, capture_for_graphics);
    MEMLAB_EXPORT_HOOK(cuStreamBeginCaptureToCig_ptsz, capture_for_graphics);
    MEMLAB_EXPORT_HOOK(cuStreamEndCaptureToCig, end_capture);
    MEMLAB_EXPORT_HOOK(cuStreamEndCaptureToCig_ptsz, end_capture);
    MEMLAB_EXPORT_HOOK(cuStreamEndCapture, end_capture);
    MEMLAB_EXPORT_HOOK(cuStreamEndCapture_ptsz, end_capture);
    // The mode is per thread, and memlab's own calls restore it.
    MEMLAB_EXPORT_PASSED(cuThreadExchangeStreamCaptureMode);
}

}  // namespace
