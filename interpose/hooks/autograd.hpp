// PyTorch's backward graph: which line of the forward an allocation made in backward is recorded
// with (hooks/autograd_nodes.hpp).
#pragma once

#include <cstdint>

#include "profiler/stack_capture.hpp"

namespace memlab::interpose {

/// The call of the forward for which the calling thread allocates while it runs backward.
/// Thread-safe; takes no lock but that of the loader's list, once and after libraries were
/// unloaded.
extern const profiler::CallOrigin backwards_origin;

/// Call after an allocation of PyTorch's on this thread was recorded at `site`. Locks as above.
void allocated_by_pytorch(profiler::CallSite site);

}  // namespace memlab::interpose
