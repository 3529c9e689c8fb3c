// Contexts: what ends one ends the memory in it; who may use whose memory decides what a fence
// must cover. A context enters the registry when memory is first allocated in it.
#include "interpose/current_context.hpp"
#include "interpose/hook.hpp"
#include "interpose/one_stream.hpp"

namespace mi = memlab::interpose;
using mi::Driver;
using mi::Session;

namespace {

template <class Real>
CUresult destroy_context(CUcontext context, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            session.cupti().before_context_ends();
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                session.contexts().lost(context);
            }
            return result;
        },
        real);
}

template <class Real>
CUresult reset_primary(CUdevice device, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            session.cupti().before_context_ends();
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                session.contexts().primary_lost(device);
            }
            return result;
        },
        real);
}

// The last release destroys the primary context as a reset does.
template <class Real>
CUresult release_primary(CUdevice device, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            session.cupti().before_context_ends();
            const CUresult result = real();
            unsigned flags = 0;
            int active = 1;
            if (result == CUDA_SUCCESS &&
                mi::call_real(&Driver::cuDevicePrimaryCtxGetState, device, &flags, &active) ==
                    CUDA_SUCCESS &&
                active == 0) {
                session.contexts().primary_lost(device);
            }
            return result;
        },
        real);
}

// A process that makes contexts of its own may have several.
CUresult created(CUresult result, const CUcontext* context) {
    if (Session* session = Session::current()) {
        session->contexts().expect_several();
    }
    if (result == CUDA_SUCCESS) {
        mi::one_stream.has_context(*context);
    }
    return result;
}

CUcontext current_context() {
    CUcontext context = nullptr;
    return mi::call_real(&Driver::cuCtxGetCurrent, &context) == CUDA_SUCCESS ? context : nullptr;
}

template <class Real>
CUresult enable_peer_access(CUcontext peer, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            const CUcontext accessor = current_context();
            // Enabled already: by a call from before memlab was there, or with the first mapping
            // of another process's memory.
            const bool enabled =
                result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
            if (enabled && accessor != nullptr) {
                session.contexts().share_memory(accessor, peer);
            }
            return result;
        },
        real);
}

}  // namespace

MEMLAB_EXPORT CUresult CUDAAPI cuCtxCreate(CUcontext* context, unsigned int flags,
                                           CUdevice device) {
    return created(mi::call_real(&Driver::cuCtxCreate, context, flags, device), context);
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags,
                                              CUdevice device) {
    return created(mi::call_real(&Driver::cuCtxCreate_v2, context, flags, device), context);
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity,
                                              int affinities, unsigned int flags, CUdevice device) {
    return created(
        mi::call_real(&Driver::cuCtxCreate_v3, context, affinity, affinities, flags, device),
        context);
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters,
                                              unsigned int flags, CUdevice device) {
    return created(mi::call_real(&Driver::cuCtxCreate_v4, context, parameters, flags, device),
                   context);
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
    return destroy_context(context, mi::real_call(&Driver::cuCtxDestroy, context));
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context) {
    return destroy_context(context, mi::real_call(&Driver::cuCtxDestroy_v2, context));
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    return enable_peer_access(peer, mi::real_call(&Driver::cuCtxEnablePeerAccess, peer, flags));
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
    const auto real = mi::real_call(&Driver::cuCtxDisablePeerAccess, peer);
    return mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                session.contexts().unshare_memory(peer);
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    const CUresult result = mi::call_real(&Driver::cuDevicePrimaryCtxRetain, context, device);
    if (result == CUDA_SUCCESS) {
        mi::one_stream.has_context(*context);
    }
    return result;
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
    return release_primary(device, mi::real_call(&Driver::cuDevicePrimaryCtxRelease, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return release_primary(device, mi::real_call(&Driver::cuDevicePrimaryCtxRelease_v2, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
    return reset_primary(device, mi::real_call(&Driver::cuDevicePrimaryCtxReset, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return reset_primary(device, mi::real_call(&Driver::cuDevicePrimaryCtxReset_v2, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
    return mi::call_real(&Driver::cuDevicePrimaryCtxSetFlags, device, flags);
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
    return mi::call_real(&Driver::cuDevicePrimaryCtxSetFlags_v2, device, flags);
}

// Green contexts share their device's primary context and its memory.

MEMLAB_EXPORT CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc resources,
                                                CUdevice device, unsigned int flags) {
    return mi::call_real(&Driver::cuGreenCtxCreate, context, resources, device, flags);
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
    const auto real = mi::real_call(&Driver::cuCtxFromGreenCtx, context, green);
    const CUresult answer = mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                CUdevice device = 0;
                CUresult known = CUDA_ERROR_UNKNOWN;
                {
                    const mi::CurrentContext current(*context);
                    known = mi::call_real(&Driver::cuCtxGetDevice, &device);
                }
                if (known == CUDA_SUCCESS) {
                    session.contexts().add_green(*context, device);
                }
            }
            return result;
        },
        real);
    if (answer == CUDA_SUCCESS) {
        mi::one_stream.has_context(*context);
    }
    return answer;
}

MEMLAB_EXPORT CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx green) {
    const auto real = mi::real_call(&Driver::cuGreenCtxDestroy, green);
    return mi::hook(
        [&](Session& session) {
            CUcontext context = nullptr;
            const bool known =
                mi::call_real(&Driver::cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS;
            // Its streams end with it, as with cuStreamDestroy.
            mi::one_stream.count_on_nothing("a context that ended");
            const CUresult result = real();
            if (result == CUDA_SUCCESS && known) {
                session.contexts().remove_green(context);
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green,
                                                      unsigned int flags, int priority) {
    return mi::call_real(&Driver::cuGreenCtxStreamCreate, stream, green, flags, priority);
}
