// Bounds checks for copies and fills. Plain CUDA rejects a call that goes past the end of an
// allocation (CUDA_ERROR_INVALID_VALUE, nothing is done), at the first byte after those requested.
// For pooled memory the driver knows only the segment and would write to a neighbour, so the pool
// is checked first.
#pragma once

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/memory/call_ranges.hpp"

namespace memlab::interpose {

class Memory;

/// Whether [address, address + bytes) begins in a pool's segment and leaves its allocation, or is
/// not in one. One lookup, no driver call.
bool is_out_of_bounds(Memory& memory, CUdeviceptr address, std::size_t bytes);

/// Whether any range named by the arguments of a copy or fill is_out_of_bounds().
template <class... Arguments>
bool any_out_of_bounds(Memory& memory, Arguments... arguments) {
    bool outside = false;
    const auto visit = [&](CUdeviceptr address, std::size_t bytes) {
        outside = outside || is_out_of_bounds(memory, address, bytes);
    };
    ranges::for_each(visit, arguments...);
    return outside;
}

/// Call when a fill past the end of an allocation is captured. Captures accept it, in plain CUDA
/// too, but the graph then cannot be instantiated.
void note_captured_overrun() noexcept;

/// Whether the graph or a child graph contains a fill that is_out_of_bounds(). The graph is
/// inspected each time: handles are reused, and not every destruction is visible. Costs one load
/// until note_captured_overrun() was called.
bool has_overrun(Memory& memory, CUgraph graph);

/// What plain CUDA returns for such a call in a stream; CUDA_SUCCESS where the driver must decide
/// (no context, a host function).
CUresult out_of_bounds_result(CUstream stream);

}  // namespace memlab::interpose
