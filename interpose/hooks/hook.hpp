// The skeleton of every hook: run memlab's implementation, or call the driver if memlab is not
// active or already on this thread's stack.
#pragma once

#include <new>
#include <string_view>
#include <tuple>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/moving/gate.hpp"
#include "interpose/process/session.hpp"

/// An exported function of libmemlab.so; all other symbols are hidden.
#define MEMLAB_EXPORT extern "C" __attribute__((visibility("default")))

/// Exports an instantiation of a template, which has no name of its own to export, as `symbol`: the
/// assembler gives the code another name, so a call of it takes no detour. In a function's body.
#define MEMLAB_EXPORT_AS(symbol, function)                                                 \
    __asm__ volatile(".globl " #symbol "\n\t.type " #symbol ", @function\n\t.set " #symbol \
                     ", %c0" ::"i"(function))

/// The hook of a driver function that differs from its siblings by its arguments alone, whose types
/// <cuda.h> knows: `body(Hooked, real, arguments...)`, a lambda. In a function's body.
#define MEMLAB_EXPORT_HOOK(symbol, body) MEMLAB_EXPORT_GENERIC_HOOK(symbol, body, call)
/// The same for what runs at every allocation or launch.
#define MEMLAB_EXPORT_HOT_HOOK(symbol, body) MEMLAB_EXPORT_GENERIC_HOOK(symbol, body, hot_call)
#define MEMLAB_EXPORT_GENERIC_HOOK(symbol, body, function)                                   \
    MEMLAB_EXPORT_AS(symbol,                                                                 \
                     (&memlab::interpose::GenericHook<                                       \
                         &memlab::interpose::Driver::symbol, memlab::interpose::Api::symbol, \
                         std::string_view(#symbol).ends_with("_ptsz"), decltype(body),       \
                         memlab::interpose::waits_at_gate(#symbol),                          \
                         memlab::interpose::asks_for_work(#symbol)>::function))

/// Passed through, some at the gate: call_real() notices sticky errors.
#define MEMLAB_EXPORT_PASSED(symbol)                                                   \
    MEMLAB_EXPORT_AS(                                                                  \
        symbol, (&memlab::interpose::Passed<&memlab::interpose::Driver::symbol,        \
                                            memlab::interpose::waits_at_gate(#symbol), \
                                            memlab::interpose::asks_for_work(#symbol)>::call))

namespace memlab::interpose {

/// The real function with its arguments, as a callable that remembers what it returned.
template <class Function, class... Arguments>
class RealCall {
  public:
    explicit RealCall(Function Driver::*function, Arguments... arguments)
        : function_(function), arguments_(arguments...) {}

    CUresult operator()() const {
        result_ = std::apply(
            [this](const Arguments&... arguments) { return call_real(function_, arguments...); },
            arguments_);
        made_ = true;
        return result_;
    }

    /// Whether it was called, and what the last call returned.
    bool made() const { return made_; }
    CUresult result() const { return result_; }

  private:
    Function Driver::*function_;
    std::tuple<Arguments...> arguments_;
    mutable CUresult result_ = CUDA_SUCCESS;
    mutable bool made_ = false;
};

template <class Function, class... Arguments>
auto real_call(Function Driver::*function, Arguments... arguments) {
    return RealCall<Function, Arguments...>(function, arguments...);
}

/// The function that a generic hook is called as.
struct Hooked {
    Api api;
    bool per_thread;  ///< its default stream is the thread's own
};

/// The last argument of a function whose versions differ in those before it.
template <class... Arguments>
auto last_of(Arguments... arguments) {
    return std::get<sizeof...(Arguments) - 1>(std::tuple(arguments...));
}

/// Whether a call waits at the gate while the process steps aside (moving/gate.hpp): it submits
/// work, begins a capture, takes device memory, or has the driver look at memory that may be away.
/// Code that is loaded lazily is loaded by the function that asks for a part of it.
/// Those of submitting_functions.inc all do.
constexpr bool waits_at_gate(std::string_view symbol) {
    for (const std::string_view first : {"cuMemAllocAsync",
                                         "cuMemAllocFromPoolAsync",
                                         "cuArrayCreate",
                                         "cuArray3DCreate",
                                         "cuMipmappedArrayCreate",
                                         "cuCtxCreate",
                                         "cuGraphLaunch",
                                         "cuGraphUpload",
                                         "cuGraphAdd",
                                         "cuGraphMem",
                                         "cuGraphExecMem",
                                         "cuGraphBatchMem",
                                         "cuGraphExecBatchMem",
                                         "cuGraphNodeSetParams",
                                         "cuGraphExecNodeSetParams",
                                         "cuGraphExecChildGraphNodeSetParams",
                                         "cuGraphClone",
                                         "cuGraphInstantiate",
                                         "cuGraphExecUpdate",
                                         "cuStreamBegin",
                                         "cuModuleLoad",
                                         "cuModuleGetFunction",
                                         "cuModuleGetGlobal",
                                         "cuLibraryLoad",
                                         "cuLibraryGet",
                                         "cuKernelGetFunction",
                                         "cuFuncLoad",
                                         "cuTexRefSetAddress",
                                         "cuTexObjectCreate",
                                         "cuSurfObjectCreate",
                                         "cuMulticast",
                                         "cuLogicalEndpointBind"}) {
        if (symbol.starts_with(first)) {
            return true;
        }
    }
    return false;
}

/// Whether a call asks for nothing but whether work is complete, or waits for that: while the gate
/// is shut all work is.
constexpr bool asks_for_work(std::string_view symbol) {
    return symbol.starts_with("cuStreamQuery") || symbol.starts_with("cuEventQuery") ||
           symbol.starts_with("cuStreamSynchronize") || symbol.starts_with("cuEventSynchronize") ||
           symbol.starts_with("cuCtxSynchronize");
}

/// What a call that does not wait at the gate does while that is shut.
enum class WhileShut : std::uint8_t { go_on, answer, refuse };
template <bool asks_for_work>
[[gnu::always_inline]] inline WhileShut while_shut() {
    if (!gate.on() || !gate.is_shut()) [[likely]] {
        return WhileShut::go_on;
    }
    if (asks_for_work && !thread_is_inside_memlab()) {
        return WhileShut::answer;
    }
    return gate.wait_while_shut() ? WhileShut::go_on : WhileShut::refuse;
}

/// Makes the call, of a function that does not wait at the gate, unless that is shut; once more
/// where it was shut when the call was on its way to the driver.
template <bool asks_for_work, class Call>
[[gnu::always_inline]] inline CUresult unless_shut(const Call& call) {
    for (;;) {
        switch (while_shut<asks_for_work>()) {
            case WhileShut::answer:
                return CUDA_SUCCESS;
            case WhileShut::refuse:
                return CUDA_ERROR_DEINITIALIZED;
            default:
                break;
        }
        const CUresult result = call();
        if (result != CUDA_ERROR_NOT_PERMITTED || thread_is_inside_memlab() ||
            !was_kept_from_driver()) [[likely]] {
            return result;
        }
    }
}

template <auto Function, Api api, bool per_thread, class Body, bool waits, bool asks_for_work>
struct GenericHook;

template <class... Arguments, CUresult (CUDAAPI* Driver::*Function)(Arguments...), Api api,
          bool per_thread, class Body, bool waits, bool asks_for_work>
struct GenericHook<Function, api, per_thread, Body, waits, asks_for_work> {
    static CUresult CUDAAPI call(Arguments... arguments) { return run(arguments...); }
    [[gnu::hot]] static CUresult CUDAAPI hot_call(Arguments... arguments) {
        return run(arguments...);
    }

  private:
    [[gnu::always_inline]] static CUresult run(Arguments... arguments) {
        if constexpr (waits) {
            const Passage passage;
            return passage.refused() ? CUDA_ERROR_DEINITIALIZED : go_on(arguments...);
        } else {
            return unless_shut<asks_for_work>([&] { return go_on(arguments...); });
        }
    }
    [[gnu::always_inline]] static CUresult go_on(Arguments... arguments) {
        return Body{}(Hooked{api, per_thread}, real_call(Function, arguments...), arguments...);
    }
};

template <auto Function, bool waits, bool asks_for_work>
struct Passed;

template <class... Arguments, CUresult (CUDAAPI* Driver::*Function)(Arguments...), bool waits,
          bool asks_for_work>
struct Passed<Function, waits, asks_for_work> {
    static CUresult CUDAAPI call(Arguments... arguments) {
        if constexpr (waits) {
            const Passage passage;
            return passage.refused() ? CUDA_ERROR_DEINITIALIZED : call_real(Function, arguments...);
        } else {
            return unless_shut<asks_for_work>([&] { return call_real(Function, arguments...); });
        }
    }
};

/// hook() of a call that the gate has counted, or that found it off: a Passage or an OtherPassage
/// of the caller's is in scope.
template <class Ours, class Plain>
[[gnu::always_inline]] inline CUresult hook_passed(const Ours& ours, const Plain& plain) {
    const InsideMemlab inside;
    if (!inside.nested()) {
        if (Session* session = Session::current_or_late()) {
            try {
                return ours(*session);
            } catch (const std::bad_alloc&) {
                session->disable_pooling("the host is out of memory");
            }
            if constexpr (requires { plain.made(); }) {
                if (plain.made()) {
                    return plain.result();
                }
            }
        }
    }
    return plain();
}

/// Runs `ours(session)` when memlab is active in this process and not already on this thread's
/// stack, else `plain()`, the real driver call. Where the host is out of memory in the middle of
/// `ours` the program gets what the driver answered, or the call is made now: what memlab has not
/// recorded then is all that is missing. No exception leaves the hook.
template <class Ours, class Plain>
[[gnu::always_inline]] inline CUresult hook(const Ours& ours, const Plain& plain) {
    const OtherPassage passage;  // what the gate has counted is not counted again
    return passage.refused() ? CUDA_ERROR_DEINITIALIZED : hook_passed(ours, plain);
}

/// Runs `work(session)` where hook() would run `ours`, and returns what it returns; false
/// otherwise, and out of host memory. For functions that are not CUDA's; `uses_cuda` as in
/// Session::current_or_late().
template <class Work>
[[gnu::always_inline]] inline bool in_session(const Work& work, bool uses_cuda = false) noexcept {
    const InsideMemlab inside;
    Session* const session = inside.nested() ? nullptr : Session::current_or_late(uses_cuda);
    try {
        return session != nullptr && work(*session);
    } catch (const std::bad_alloc&) {
        return false;
    }
}

/// As hook(), but `ours(session, nested)` also runs while the thread is inside memlab: it must then
/// neither block on a lock nor throw.
template <class Ours, class Plain>
CUresult hook_nested(const Ours& ours, const Plain& plain) {
    if (thread_is_inside_memlab()) {
        Session* session = Session::current();
        return session != nullptr ? ours(*session, true) : plain();
    }
    return hook([&](Session& session) { return ours(session, false); }, plain);
}

}  // namespace memlab::interpose
