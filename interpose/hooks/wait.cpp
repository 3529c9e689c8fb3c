// Synchronizing calls: the recorder aggregates pending events while the program waits for the
// device anyway. That is free unless the device finishes sooner; the recorder then does it less
// often. After them the device is mostly idle, and a sample of its used memory is cheap: what was
// loaded for the work shows there.
//
// While the process steps aside they leave the driver to the mover as long as that waits for the
// device's work (moving/gate.hpp). From then on all work is complete, and nothing is waited for.
#include <cstdint>

#include "interpose/driver/current_context.hpp"
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
    const mi::OtherPassage passage;
    if (result == CUDA_SUCCESS && !passage.refused()) {
        with_session([](Session& session) {
            session.ledger().sample_if_due();
            return true;
        });
    }
}

bool is_followed(CUcontext context) {
    return context != nullptr && with_session([context](Session& session) {
               std::size_t index = 0;
               const mi::Context* each = nullptr;
               do {
                   each = session.contexts().next(-1, &index);
               } while (each != nullptr && each->handle() != context);
               return each != nullptr;
           });
}

// What a call answers once all work is complete; "not ready": that has to be asked of the driver,
// as work of another process or of a context that memlab does not know.
constexpr CUresult has_to_wait = CUDA_ERROR_NOT_READY;

CUresult answer_when_over(mi::Api api, CUstream stream) {
    return api == mi::Api::cuStreamSynchronize_ptsz
               ? mi::call_real(&Driver::cuStreamQuery_ptsz, stream)
               : mi::call_real(&Driver::cuStreamQuery, stream);
}
CUresult answer_when_over(mi::Api /*api*/, CUevent event) {
    return mi::call_real(&Driver::cuEventQuery, event);
}
CUresult answer_when_over(mi::Api /*api*/, CUcontext context) {
    return is_followed(context) ? CUDA_SUCCESS : has_to_wait;
}
CUresult answer_when_over(mi::Api api) {
    return answer_when_over(api, mi::current_context());
}

// The real call is made outside memlab: a profiler's callback in it may allocate.
constexpr auto wait_for_device = [](mi::Hooked hooked, const auto& real, auto... of) {
    if (mi::gate.on() && mi::gate.work_is_over()) [[unlikely]] {
        if (mi::while_shut<true>() == mi::WhileShut::answer) {
            return CUDA_SUCCESS;
        }
        if (const CUresult answer = answer_when_over(hooked.api, of...); answer != has_to_wait) {
            return answer;
        }
    }
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
