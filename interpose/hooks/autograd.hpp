// PyTorch's backward graph, as far as allocations have to do with it: whose line an allocation of
// backward gets (hooks/autograd_nodes.hpp).
#pragma once

#include <cstdint>

#include "profiler/stack_capture.hpp"

namespace memlab::interpose {

/// For whom the calling thread allocates, if backward does. Thread-safe; takes no lock, but that of
/// the loader's list once and after libraries were unloaded.
extern const profiler::CallOrigin backwards_origin;

/// PyTorch allocated on this thread, which was recorded with this stack. As above.
void allocated_by_pytorch(std::uint32_t stack);

}  // namespace memlab::interpose
