// Exports allocations and frees as the log of RMM's logging_resource_adaptor, for its readers
// (RMM's replay benchmark, scripts): Thread,Time,Action,Pointer,Size,Stream. Actions are allocate,
// free and "allocate failure", times are local wall clock with microseconds, pointers as printf's
// %p, streams as a C++ stream prints a pointer.
//
// Only memory that a device resource can serve: device, managed, async_pool and graph. Sizes are
// requested sizes.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// Needs the event log. May throw std::bad_alloc.
Result write_csv(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
