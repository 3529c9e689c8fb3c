// A snapshot as torch.cuda.memory._snapshot() has it, pickled: what torch.cuda._memory_viz and
// https://pytorch.org/memory_viz read. {segments, device_traces, allocator_settings}, protocol 2,
// only the operations that the page's own reader knows, lists in pieces of at most 1000.
//
// Both readers replay the trace backwards from the segments, so on any log
//   - every live block lies inside one segment at each point of the trace,
//   - the trace ends in the state that the segments show,
//   - the blocks of a segment add up to it.
// memlab's segments and blocks are as they were. An allocation that the pool did not serve (the
// driver's own pools, arrays, VMM, MEMLAB_POOL=off) becomes a segment of its own with one block;
// where it has a handle instead of an address, or its address is taken, it gets one above 2^52.
// Sizes of a trace are requested sizes, as PyTorch's. Memory that is no device memory is left out.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// Needs the event log, which is read once for each GPU. May throw std::bad_alloc.
Result write_pytorch(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
