// What makes the allocations of a function that does work for another call: PyTorch's engine, which
// runs on its own thread what an operator of the forward left to do.
#pragma once

#include <cstdint>

namespace memlab::profiler {

struct CallOrigin {
    std::uintptr_t begin = 0;  ///< of the function's code
    std::uintptr_t bytes = 0;  ///< of the function's code; 0: there is no such function

    /// The id of the stack of the call that the innermost activation of the function on this thread
    /// works for; 0: unknown. Called inside of that activation.
    std::uint32_t (*stack)() noexcept = nullptr;
};

}  // namespace memlab::profiler
