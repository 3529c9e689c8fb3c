// The function of the CUDA runtime that the calling thread is in, while CUPTI tells: between the
// two callbacks around a call. The driver function that the runtime calls meanwhile is hooked, and
// its event names what the program called.
#pragma once

#include <cstdint>

namespace memlab::profiler::cupti {

struct CurrentCall {
    std::uint32_t api = 0;          ///< the recording's id of the function's name; 0: none
    std::uint32_t correlation = 0;  ///< CUPTI's number of the call
};

/// Of the calling thread; all zero outside of such a call, and always while memlab is no
/// subscriber.
CurrentCall current_call();

}  // namespace memlab::profiler::cupti
