// For calls that change the device's used memory without an allocation to record: the driver's
// pools and graphs take and release memory on their own.
#pragma once

#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"

namespace memlab::interpose {

/// Makes the driver call, once more if it lacked memory that the pools could give back, then
/// samples how much of the current device is in use.
template <class Real>
CUresult call_and_sample(const Real& real) {
    return hook(
        [&](Session& session) {
            const CUresult result = retry_after_release(session, real);
            if (Context* context = session.contexts().current()) {
                sample_device(session, *context);
            }
            return result;
        },
        real);
}

}  // namespace memlab::interpose
