// Contexts: destroying one ends its memory; peer access decides which work a fence must cover. A
// context enters the registry when memory is first allocated in it.
#include <algorithm>
#include <array>
#include <initializer_list>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/hooks/call_and_sample.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/measured_call.hpp"

namespace mi = memlab::interpose;
using mi::Api;
using mi::Driver;
using mi::Session;

namespace {

// Makes a driver call that may destroy these contexts; `is_destroyed(context)` tells whether it
// did.
template <class IsDestroyed, class Real>
CUresult call_destroying(Session& session, Api api, std::initializer_list<CUcontext> contexts,
                         const Real& real, const IsDestroyed& is_destroyed) {
    constexpr std::size_t max_contexts = 2;
    std::array<mi::Context*, max_contexts> registered{};
    session.cupti().before_context_ends();
    std::transform(contexts.begin(), contexts.end(), registered.begin(),
                   [&](CUcontext each) { return session.contexts().before_destroy(each); });
    const CUresult result = real();
    std::size_t index = 0;
    for (const CUcontext each : contexts) {
        const bool destroyed = result == CUDA_SUCCESS && is_destroyed(each);
        session.contexts().after_destroy(each, registered[index++], destroyed);
        if (destroyed) {
            session.ledger().context_ended(api, each);
        }
    }
    return result;
}

template <class Real>
CUresult destroy_context(Api api, CUcontext context, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            return call_destroying(session, api, {context}, real, [](CUcontext) { return true; });
        },
        real);
}

bool primary_is_inactive(CUdevice device) {
    unsigned flags = 0;
    int active = 1;
    return mi::call_real(&Driver::cuDevicePrimaryCtxGetState, device, &flags, &active) ==
               CUDA_SUCCESS &&
           active == 0;
}

template <class Real>
CUresult reset_primary(Api api, CUdevice device, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            return call_destroying(session, api, {session.contexts().primary_of(device)}, real,
                                   [](CUcontext) { return true; });
        },
        real);
}

// The last release destroys the primary context, like a reset.
template <class Real>
CUresult release_primary(Api api, CUdevice device, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            return call_destroying(session, api, {session.contexts().primary_of(device)}, real,
                                   [device](CUcontext) { return primary_is_inactive(device); });
        },
        real);
}

CUresult on_context(CUresult result, const CUcontext* context) {
    if (result == CUDA_SUCCESS) {
        if (Session* session = Session::current()) {
            session->contexts().check_identity(*context);
        }
        mi::one_stream.has_context(*context);
    }
    return result;
}

// Makes a call that may create a context, and measures what that takes.
template <class Real>
CUresult call_creating(Api api, CUdevice device, const CUcontext* context, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            const mi::Ledger::Before before = session.ledger().before(
                {.kind = memlab::trace::LedgerKind::context, .device = device});
            const CUresult result = mi::retry_after_release(session, real, device);
            if (result == CUDA_SUCCESS) {
                session.context_created(before, api, *context);
            }
            return result;
        },
        real);
}

// A process that creates contexts may have more than one.
template <class Real>
CUresult create_context(Api api, CUdevice device, const CUcontext* context, const Real& real) {
    const CUresult result = call_creating(api, device, context, real);
    if (Session* session = Session::current()) {
        session->contexts().expect_multiple();
    }
    return on_context(result, context);
}

// The first one that retains the primary context creates it. A registered one is there: one whose
// end was not seen on_context() finds, and what creating it took is then not measured.
template <class Real>
CUresult retain_primary(Api api, CUdevice device, const CUcontext* context, const Real& real) {
    Session* const session = Session::current();
    const bool known =
        session != nullptr && session->contexts().registered_primary(device) != nullptr;
    return on_context(!known && primary_is_inactive(device)
                          ? call_creating(api, device, context, real)
                          : mi::call_and_retry(real, device),
                      context);
}

template <class Real>
CUresult enable_peer_access(CUcontext peer, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            const mi::Ledger::Before before =
                session.ledger().before({.kind = memlab::trace::LedgerKind::other});
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                session.ledger().after(before, Api::cuCtxEnablePeerAccess);
            }
            const CUcontext accessor = mi::current_context();
            // Already enabled by a call before memlab was loaded, or, as documented, with the first
            // mapping of another process's memory.
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
    return create_context(Api::cuCtxCreate, device, context,
                          mi::real_call(&Driver::cuCtxCreate, context, flags, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags,
                                              CUdevice device) {
    return create_context(Api::cuCtxCreate_v2, device, context,
                          mi::real_call(&Driver::cuCtxCreate_v2, context, flags, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity,
                                              int affinities, unsigned int flags, CUdevice device) {
    return create_context(
        Api::cuCtxCreate_v3, device, context,
        mi::real_call(&Driver::cuCtxCreate_v3, context, affinity, affinities, flags, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters,
                                              unsigned int flags, CUdevice device) {
    return create_context(
        Api::cuCtxCreate_v4, device, context,
        mi::real_call(&Driver::cuCtxCreate_v4, context, parameters, flags, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
    return destroy_context(Api::cuCtxDestroy, context,
                           mi::real_call(&Driver::cuCtxDestroy, context));
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context) {
    return destroy_context(Api::cuCtxDestroy_v2, context,
                           mi::real_call(&Driver::cuCtxDestroy_v2, context));
}

// Both are deprecated but still work: a context from cuCtxCreate is destroyed by the detach that
// brings its usage count to 0, and is then no longer current.

MEMLAB_EXPORT CUresult CUDAAPI cuCtxAttach(CUcontext* context, unsigned int flags) {
    return on_context(mi::call_real(&Driver::cuCtxAttach, context, flags), context);
}

MEMLAB_EXPORT CUresult CUDAAPI cuCtxDetach(CUcontext context) {
    const auto real = mi::real_call(&Driver::cuCtxDetach, context);
    return mi::hook(
        [&](Session& session) {
            return call_destroying(session, Api::cuCtxDetach, {context}, real,
                                   [](CUcontext each) { return mi::current_context() != each; });
        },
        real);
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
    return retain_primary(Api::cuDevicePrimaryCtxRetain, device, context,
                          mi::real_call(&Driver::cuDevicePrimaryCtxRetain, context, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
    return release_primary(Api::cuDevicePrimaryCtxRelease, device,
                           mi::real_call(&Driver::cuDevicePrimaryCtxRelease, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return release_primary(Api::cuDevicePrimaryCtxRelease_v2, device,
                           mi::real_call(&Driver::cuDevicePrimaryCtxRelease_v2, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
    return reset_primary(Api::cuDevicePrimaryCtxReset, device,
                         mi::real_call(&Driver::cuDevicePrimaryCtxReset, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return reset_primary(Api::cuDevicePrimaryCtxReset_v2, device,
                         mi::real_call(&Driver::cuDevicePrimaryCtxReset_v2, device));
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
    return mi::call_real(&Driver::cuDevicePrimaryCtxSetFlags, device, flags);
}

MEMLAB_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
    return mi::call_real(&Driver::cuDevicePrimaryCtxSetFlags_v2, device, flags);
}

// Green contexts share their device's primary context and its memory, and each retains it:
// destroying the last one may destroy it.

MEMLAB_EXPORT CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc resources,
                                                CUdevice device, unsigned int flags) {
    return mi::call_and_retry(
        mi::real_call(&Driver::cuGreenCtxCreate, context, resources, device, flags), device);
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
            CUdevice device = -1;
            if (mi::call_real(&Driver::cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS) {
                const mi::CurrentContext current(context);
                if (mi::call_real(&Driver::cuCtxGetDevice, &device) != CUDA_SUCCESS) {
                    device = -1;
                }
            } else {
                context = nullptr;
            }
            // Its streams end with it, as with cuStreamDestroy.
            mi::one_stream.begin_switch("a context that ended");
            const CUcontext primary = device >= 0 ? session.contexts().primary_of(device) : nullptr;
            const CUresult result = call_destroying(
                session, Api::cuGreenCtxDestroy, {context, primary}, real,
                [&](CUcontext each) { return each == context || primary_is_inactive(device); });
            session.contexts().forget_stream(0);
            return result;
        },
        real);
}
