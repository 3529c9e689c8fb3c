// Memory that a library takes for itself with its first use and keeps, however often it is used:
// told by the binaries of the call stack, since native functions have no names in the running
// process.
#pragma once

#include <string_view>

#include "trace/aggregate/aggregator.hpp"

namespace memlab::trace {

/// Of a binary on a call stack, by its path: what asks for memory is behind it (PyTorch's
/// allocator, CUDA's libraries).
bool passes_on_requests(std::string_view path);
/// PyTorch's CUDA code.
bool is_pytorchs_cuda(std::string_view path);

/// Whether cuBLAS, cuDNN or NCCL took what is allocated at this site for their handles, or
/// PyTorch's CUDA code for itself and for no tensor: its workspaces of cuBLAS, its cache of pinned
/// memory. Thread-safety: as the aggregator's.
bool is_taken_by_library(const Aggregator& from, const Site& site);

}  // namespace memlab::trace
