// How every hook is built: enter, do memlab's part, or get out of the way.
#pragma once

#include <new>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/process/session.hpp"

/// An interposed function: one of the few symbols that libmemlab.so exports.
#define MEMLAB_EXPORT extern "C" __attribute__((visibility("default")))

namespace memlab::interpose {

/// Runs `ours(session)` when memlab is at work in this process and not already on this thread's
/// stack, else `plain()`, the real driver call. Out of host memory in between, the program gets the
/// answer that the driver would give to that; nothing is ever thrown at it.
template <class Ours, class Plain>
[[gnu::always_inline]] inline CUresult hook(const Ours& ours, const Plain& plain) {
    const InsideMemlab inside;
    if (!inside.nested()) {
        if (Session* session = Session::current_or_late()) {
            try {
                return ours(*session);
            } catch (const std::bad_alloc&) {
                session->disable_pooling("the host is out of memory");
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
    }
    return plain();
}

/// As hook(), and `ours(session, nested)` also runs while the thread is inside memlab already: it
/// must then neither wait for a lock nor throw.
template <class Ours, class Plain>
CUresult hook_nested(const Ours& ours, const Plain& plain) {
    if (thread_is_inside_memlab()) {
        Session* session = Session::current();
        return session != nullptr ? ours(*session, true) : plain();
    }
    return hook([&](Session& session) { return ours(session, false); }, plain);
}

/// The real function with these arguments, as a callable.
template <class Function, class... Arguments>
auto real_call(Function Driver::*function, Arguments... arguments) {
    return [function, arguments...] { return call_real(function, arguments...); };
}

}  // namespace memlab::interpose
