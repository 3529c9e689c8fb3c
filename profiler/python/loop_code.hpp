// The machine code of the interpreter's evaluation loop.
//
// For CPython 3.9, whose activations of the loop leave no record on the C stack: a native frame is
// one if its return address is in the loop. The compiler puts what runs rarely into a second,
// distant part, which has no symbol in a stripped binary, but unwind tables of its own, and the
// first part's branches lead there.
#pragma once

#include <cstdint>

#include "profiler/unwind/bytes.hpp"

namespace memlab::profiler::python {

struct LoopCode {
    unwind::Bytes parts[2];

    /// Whether the call before it is in the loop.
    bool returns_to(std::uintptr_t return_address) const {
        return parts[0].contains(return_address - 1) || parts[1].contains(return_address - 1);
    }
};

/// `loop`: the address of _PyEval_EvalFrameDefault. Empty without unwind tables. Takes no lock,
/// allocates nothing. The object must stay loaded during the call.
LoopCode find_loop_code(std::uintptr_t loop);

}  // namespace memlab::profiler::python
