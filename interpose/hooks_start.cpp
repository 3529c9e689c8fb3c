// cuInit: where memlab begins.
#include "interpose/hook.hpp"

using memlab::interpose::call_real;
using memlab::interpose::Driver;
using memlab::interpose::Session;

MEMLAB_EXPORT CUresult CUDAAPI cuInit(unsigned int flags) {
    const memlab::interpose::InsideMemlab inside;
    const CUresult result = call_real(&Driver::cuInit, flags);
    if (result == CUDA_SUCCESS && !inside.nested()) {
        Session::start(false);
    }
    return result;
}
