// Allocations and frees as RMM's logging_resource_adaptor writes them, for what reads its logs
// (RMM's own replay benchmark, scripts): Thread,Time,Action,Pointer,Size,Stream, with RMM's words
// allocate, free and "allocate failure", the wall clock's time of day with microseconds, pointers
// as printf's %p, streams as a C++ stream shows a pointer.
//
// Memory that a device resource could have served: device, managed, async_pool and graph. A size is
// what the program asked for.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// Needs the event log. May throw std::bad_alloc.
Result write_csv(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
