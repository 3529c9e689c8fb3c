// Memory that a library takes for itself with its first use and keeps, however often it is used:
// told by the binaries of the call stack, since native functions have no names in the running
// process.
#pragma once

#include "trace/aggregate/aggregator.hpp"

namespace memlab::trace {

/// Whether cuBLAS, cuDNN or NCCL took what is allocated at this site for their handles, or
/// PyTorch's CUDA code for itself and for no tensor: its workspaces of cuBLAS, its cache of pinned
/// memory. Thread-safety: as the aggregator's.
bool is_taken_by_library(const Aggregator& from, const Site& site);

}  // namespace memlab::trace
