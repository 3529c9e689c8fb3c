// For calls that take or release device memory without a size in their arguments: measured for the
// ledger. The program gets the driver's own answer even if the measurement fails.
#pragma once

#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"

namespace memlab::interpose {

/// Makes the driver call, once more if it lacked memory that the pools could give back, and
/// measures what it took of the current context's device. `object()`: the string id of the file
/// that code came from.
template <class Real, class Object>
CUresult measured(Session& session, trace::LedgerKind kind, Api api, const Real& real,
                  const Object& object) {
    const Ledger::Before before = session.ledger().before(kind);
    const CUresult result = retry_after_release(session, real);
    if (result == CUDA_SUCCESS) {
        session.ledger().after(before, api, object());
    }
    return result;
}

/// The same for calls that load no code.
template <class Real>
CUresult measured(Session& session, trace::LedgerKind kind, Api api, const Real& real) {
    return measured(session, kind, api, real, [] { return std::uint32_t{0}; });
}

}  // namespace memlab::interpose
