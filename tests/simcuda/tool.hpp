// The attached tool, if there is one.
#pragma once

#include "tests/simcuda/tool.h"

namespace memlab::simcuda {

/// Null when nobody listens. A forked child has no tool.
const simcuda_tool* attached_tool();

bool is_free_async_broken();

inline void tell_memory(simcuda_memory_kind kind, uint64_t address, uint64_t bytes, int device) {
    if (const simcuda_tool* tool = attached_tool()) {
        tool->memory(kind, address, bytes, device);
    }
}

}  // namespace memlab::simcuda
