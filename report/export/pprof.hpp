// Exports a profile for pprof (https://github.com/google/pprof, proto/profile.proto): gzipped
// protocol buffers. Each call site is a sample with six values,
//
//   allocations/count  space/bytes        all allocations
//   peak_objects       peak_space         held at the device's allocated peak
//   inuse_objects      inuse_space        never freed
//
// pprof shows Input::by (default_sample_type), and any other with -sample_index. Samples carry the
// labels device and kind, for -tagfocus.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// May throw std::bad_alloc.
Result write_pprof(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
