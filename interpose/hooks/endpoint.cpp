// Logical endpoints (CUDA 13.3): other GPUs of an NVLink fabric reach the memory that is bound to
// one, in other processes, too. Their work is not this process's, and no fence waits for it: from
// the first such call on nothing is assumed about the memory that the pool would serve.
#include "interpose/hooks/hook.hpp"
#include "interpose/process/unknown_functions.hpp"

namespace mi = memlab::interpose;
using mi::Driver;

namespace {

template <auto Function, mi::Api api>
struct Endpoint;

template <class... Arguments, CUresult (CUDAAPI* Driver::*Function)(Arguments...), mi::Api api>
struct Endpoint<Function, api> {
    [[gnu::cold]] static CUresult CUDAAPI call(Arguments... arguments) {
        mi::on_unfollowed_call(mi::function_name(api));
        return mi::call_real(Function, arguments...);
    }
};

#define MEMLAB_ENDPOINT(symbol) \
    MEMLAB_EXPORT_AS(symbol, (&Endpoint<&Driver::symbol, mi::Api::symbol>::call))
[[gnu::used]] void export_endpoint_functions() {
    MEMLAB_ENDPOINT(cuLogicalEndpointCreate);
    MEMLAB_ENDPOINT(cuLogicalEndpointBindAddr);
    MEMLAB_ENDPOINT(cuLogicalEndpointBindMem);
    MEMLAB_ENDPOINT(cuLogicalEndpointExport);
    MEMLAB_ENDPOINT(cuLogicalEndpointImport);
}
#undef MEMLAB_ENDPOINT

}  // namespace
