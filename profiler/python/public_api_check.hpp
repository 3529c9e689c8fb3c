// Verifies the frames read from memory against CPython's public API.
#pragma once

#include <cstdint>

#include "profiler/python/frames.hpp"

namespace memlab::profiler::python {

enum class Comparison : std::uint8_t {
    equal,
    different,
    not_now,  ///< the thread does not hold the GIL, or an exception is pending
};

/// `frames` must be the calling thread's, still active. Creates frame objects as any traceback
/// does, with the garbage collector disabled so that no finalizer runs; the only place that takes
/// references. Throws std::bad_alloc.
Comparison compare_with_public_api(const Interpreter& interpreter, const Frames& frames);

}  // namespace memlab::profiler::python
