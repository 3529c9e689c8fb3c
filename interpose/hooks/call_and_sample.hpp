// For calls that change the device's used memory without an allocation to record: the driver's
// pools and graphs take and release memory on their own.
#pragma once

#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"

namespace memlab::interpose {

/// Makes the driver call, once more if it lacked memory of `device` (-1: of the current context's)
/// that the pools could give back.
template <class Real>
CUresult call_and_retry(const Real& real, CUdevice device = -1) {
    return hook([&](Session& session) { return retry_after_release(session, real, device); }, real);
}

/// The same, then samples how much of the current device is in use.
template <class Real>
CUresult call_and_sample(const Real& real) {
    return hook(
        [&](Session& session) {
            const CUresult result = retry_after_release(session, real);
            if (Context* context = session.contexts().current()) {
                sample_device(session, context->device());
            }
            return result;
        },
        real);
}

}  // namespace memlab::interpose
