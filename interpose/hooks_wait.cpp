// Where the program waits for the device anyway, the recorder does what it has put off: it costs
// nothing there unless the device is quicker.
#include "interpose/hook.hpp"

namespace mi = memlab::interpose;
using mi::Driver;
using mi::Session;

namespace {

// The real call is made from outside of memlab: a profiler's callback in it may allocate.
template <class... Arguments>
CUresult wait(CUresult (*Driver::*real)(Arguments...), Arguments... arguments) {
    {
        const mi::InsideMemlab inside;
        Session* const session = inside.nested() ? nullptr : Session::current();
        if (session != nullptr && session->recorder() != nullptr) {
            session->recorder()->before_waiting();
        }
    }
    return mi::call_real(real, arguments...);
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
