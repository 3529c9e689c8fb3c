// The frames as read from memory against the interpreter's own account of them.
#pragma once

#include <cstdint>

#include "profiler/python/frames.hpp"

namespace memlab::profiler::python {

enum class Comparison : std::uint8_t {
    equal,
    different,
    not_now,  ///< the thread does not hold the GIL, or an exception is pending
};

/// `frames` must be the calling thread's, read in this call. Makes frame objects as any traceback
/// does, with the collector off so that no finalizer runs: this is the one time that references
/// change. Throws std::bad_alloc.
Comparison compare_with_public_api(const Interpreter& interpreter, const Frames& frames);

}  // namespace memlab::profiler::python
