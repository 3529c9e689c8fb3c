// Copies and fills past the end of an allocation. Plain CUDA refuses them
// (CUDA_ERROR_INVALID_VALUE, nothing is done) at the byte behind those that were asked for. Of
// pooled memory the driver knows the segment only, and would let them into a neighbour; so the pool
// is asked first.
#pragma once

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/memory/call_ranges.hpp"

namespace memlab::interpose {

class Memory;

/// Whether [address, address + bytes) begins in a pool's segment and leaves what is allocated
/// there, or is in nothing that is. One look-up, no call of the driver.
bool outside_of_pooled(Memory& memory, CUdeviceptr address, std::size_t bytes);

/// Whether any range that the arguments of a copy or fill name is outside_of_pooled().
template <class... Arguments>
bool names_outside(Memory& memory, Arguments... arguments) {
    bool outside = false;
    const auto visit = [&](CUdeviceptr address, std::size_t bytes) {
        outside = outside || outside_of_pooled(memory, address, bytes);
    };
    ranges::of_call(visit, arguments...);
    return outside;
}

/// A capture takes a fill past the end of an allocation, in plain CUDA too, and the graph then
/// cannot be made executable. To be told of each such fill.
void captured_outside() noexcept;

/// Whether the graph or a child graph of it holds a fill that is outside_of_pooled(). The graph is
/// asked, not remembered: a handle is used again for another graph, and of many that go nobody
/// tells. False at the price of a load as long as captured_outside() was never told.
bool fills_outside(Memory& memory, CUgraph graph);

/// What plain CUDA answers to a call that names such a range in a stream; CUDA_SUCCESS where the
/// driver has to say itself what it thinks of the call (no context, a host function).
CUresult answer_to_outside(CUstream stream);

}  // namespace memlab::interpose
