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

constexpr auto destroy_context = [](mi::Hooked hooked, const auto& real, CUcontext context) {
    return mi::hook(
        [&](Session& session) {
            return call_destroying(session, hooked.api, {context}, real,
                                   [](CUcontext) { return true; });
        },
        real);
};

// Both are deprecated but still work: a context from cuCtxCreate is destroyed by the detach that
// brings its usage count to 0, and is then no longer current.
constexpr auto detach_context = [](mi::Hooked hooked, const auto& real, CUcontext context) {
    return mi::hook(
        [&](Session& session) {
            return call_destroying(session, hooked.api, {context}, real,
                                   [](CUcontext each) { return mi::current_context() != each; });
        },
        real);
};

bool primary_is_inactive(CUdevice device) {
    unsigned flags = 0;
    int active = 1;
    return mi::call_real(&Driver::cuDevicePrimaryCtxGetState, device, &flags, &active) ==
               CUDA_SUCCESS &&
           active == 0;
}

constexpr auto reset_primary = [](mi::Hooked hooked, const auto& real, CUdevice device) {
    return mi::hook(
        [&](Session& session) {
            return call_destroying(session, hooked.api, {session.contexts().primary_of(device)},
                                   real, [](CUcontext) { return true; });
        },
        real);
};

// The last release destroys the primary context, like a reset.
constexpr auto release_primary = [](mi::Hooked hooked, const auto& real, CUdevice device) {
    return mi::hook(
        [&](Session& session) {
            return call_destroying(session, hooked.api, {session.contexts().primary_of(device)},
                                   real,
                                   [device](CUcontext) { return primary_is_inactive(device); });
        },
        real);
};

// A process that can step aside has to know all contexts whose work may use memory, also those that
// never allocate any.
void register_context(CUcontext context) {
    mi::in_session([context](Session& session) {
        const mi::CurrentContext current(context);
        return session.contexts().current() != nullptr;
    });
}

CUresult on_context(CUresult result, const CUcontext* context) {
    if (result == CUDA_SUCCESS) {
        if (Session* session = Session::current()) {
            session->contexts().check_identity(*context);
        }
        if (mi::gate.on()) [[unlikely]] {
            register_context(*context);
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
constexpr auto create_context = [](mi::Hooked hooked, const auto& real, CUcontext* context,
                                   auto... rest) {
    const CUdevice device = mi::last_of(rest...);
    const CUresult result = call_creating(hooked.api, device, context, real);
    if (Session* session = Session::current()) {
        session->contexts().expect_multiple();
    }
    return on_context(result, context);
};

constexpr auto attach_context = [](mi::Hooked, const auto& real, CUcontext* context, unsigned) {
    return on_context(real(), context);
};

// The first one that retains the primary context creates it. A registered one is there: one whose
// end was not seen on_context() finds, and what creating it took is then not measured.
constexpr auto retain_primary = [](mi::Hooked hooked, const auto& real, CUcontext* context,
                                   CUdevice device) {
    Session* const session = Session::current();
    const bool known =
        session != nullptr && session->contexts().registered_primary(device) != nullptr;
    const bool creates = !known && primary_is_inactive(device);
    const mi::Passage passage(creates);
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    return on_context(creates ? call_creating(hooked.api, device, context, real)
                              : mi::call_and_retry(real, device),
                      context);
};

constexpr auto enable_peer_access = [](mi::Hooked hooked, const auto& real, CUcontext peer,
                                       unsigned) {
    return mi::hook(
        [&](Session& session) {
            const mi::Ledger::Before before =
                session.ledger().before({.kind = memlab::trace::LedgerKind::other});
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                session.ledger().after(before, hooked.api);
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
};

constexpr auto disable_peer_access = [](mi::Hooked, const auto& real, CUcontext peer) {
    return mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                session.contexts().unshare_memory(peer);
            }
            return result;
        },
        real);
};

[[gnu::used]] void export_context_functions() {
    MEMLAB_EXPORT_HOOK(cuCtxCreate, create_context);
    MEMLAB_EXPORT_HOOK(cuCtxCreate_v2, create_context);
    MEMLAB_EXPORT_HOOK(cuCtxCreate_v3, create_context);
    MEMLAB_EXPORT_HOOK(cuCtxCreate_v4, create_context);
    MEMLAB_EXPORT_HOOK(cuCtxDestroy, destroy_context);
    MEMLAB_EXPORT_HOOK(cuCtxDestroy_v2, destroy_context);
    MEMLAB_EXPORT_HOOK(cuCtxAttach, attach_context);
    MEMLAB_EXPORT_HOOK(cuCtxDetach, detach_context);
    MEMLAB_EXPORT_HOOK(cuCtxEnablePeerAccess, enable_peer_access);
    MEMLAB_EXPORT_HOOK(cuCtxDisablePeerAccess, disable_peer_access);
    MEMLAB_EXPORT_HOOK(cuDevicePrimaryCtxRetain, retain_primary);
    MEMLAB_EXPORT_HOOK(cuDevicePrimaryCtxRelease, release_primary);
    MEMLAB_EXPORT_HOOK(cuDevicePrimaryCtxRelease_v2, release_primary);
    MEMLAB_EXPORT_HOOK(cuDevicePrimaryCtxReset, reset_primary);
    MEMLAB_EXPORT_HOOK(cuDevicePrimaryCtxReset_v2, reset_primary);
    MEMLAB_EXPORT_PASSED(cuDevicePrimaryCtxSetFlags);
    MEMLAB_EXPORT_PASSED(cuDevicePrimaryCtxSetFlags_v2);
}

}  // namespace

// Green contexts share their device's primary context and its memory, and each retains it:
// destroying the last one may destroy it.

MEMLAB_EXPORT CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc resources,
                                                CUdevice device, unsigned int flags) {
    const mi::Passage passage;
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
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
