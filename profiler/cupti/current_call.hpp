// The CUDA runtime function that the calling thread is in, known between CUPTI's enter and exit
// callbacks. Events of the driver calls that the runtime makes meanwhile name this function.
#pragma once

#include <cstdint>

namespace memlab::profiler::cupti {

struct CurrentCall {
    std::uint32_t api = 0;          ///< the recording's id of the function's name; 0: none
    std::uint32_t correlation = 0;  ///< CUPTI's correlation id of the call
};

/// The calling thread's; all zero outside of such a call, and while memlab is not subscribed.
CurrentCall current_call();

}  // namespace memlab::profiler::cupti
