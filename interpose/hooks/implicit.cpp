// Hooks of the driver functions that take device memory implicitly (implicit_functions.inc): the
// call, and once more after the pools have released what they do not use.
//
// The wrappers are instantiated from the types in <cuda.h>; the exported symbols jump to them
// (stubs.S) through the table below.
#include "interpose/hooks/call_and_sample.hpp"
#include "interpose/hooks/hook.hpp"

namespace mi = memlab::interpose;
using mi::Driver;

namespace {

template <auto Function>
struct Implicit;

template <class... Arguments, CUresult (CUDAAPI* Driver::*Function)(Arguments...)>
struct Implicit<Function> {
    static CUresult CUDAAPI call(Arguments... arguments) {
        return mi::call_and_retry(mi::real_call(Function, arguments...));
    }
};

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* const memlab_implicit_wrappers[] = {
#define MEMLAB_HOOK(symbol, base, version, per_thread) \
    reinterpret_cast<void*>(&Implicit<&Driver::symbol>::call),
#include "interpose/driver/implicit_functions.inc"
#undef MEMLAB_HOOK
};
