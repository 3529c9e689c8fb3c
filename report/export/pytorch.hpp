// Exports a pickled snapshot like that of torch.cuda.memory._snapshot(), for torch.cuda._memory_viz
// and https://pytorch.org/memory_viz: {segments, device_traces, allocator_settings}, protocol 2,
// only operations that the page's unpickler supports, lists in batches of at most 1000.
//
// Both readers replay the trace backwards from the segments, so for any log
//   - every live block lies inside one segment at each point of the trace,
//   - the trace ends in the state that the segments show,
//   - the blocks of a segment add up to it.
// memlab's segments and blocks are exported unchanged. An allocation that the pool did not serve
// (the driver's own pools, arrays, VMM, MEMLAB_POOL=off) becomes a segment with one block; if it
// has a handle instead of an address, or its address is in use, it gets a synthetic one above 2^52.
// Sizes in a trace are requested sizes, as in PyTorch. Only device memory is exported.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// Needs the event log, which is read once for each GPU. May throw std::bad_alloc.
Result write_pytorch(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
