// Copies and fills as nodes of graphs: work that names its memory when the graph is launched, and
// reads host memory when it runs.
#pragma once

#include "tests/simcuda/driver_abi.hpp"
#include "tests/simcuda/timeline.hpp"

namespace memlab::simcuda {

// The node's work; CUDA_ERROR_INVALID_VALUE where the driver refuses the parameters.
CUresult copy_node(const CUDA_MEMCPY3D* parameters, Work& work);
CUresult fill_node(const CUDA_MEMSET_NODE_PARAMS* parameters, Work& work);

// Does the fill lie in one piece of memory? Of captured ones nobody has looked yet.
bool can_fill(const CUDA_MEMSET_NODE_PARAMS& parameters);

}  // namespace memlab::simcuda
