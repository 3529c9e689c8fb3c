// The table of allocator frames: functions between a program's own line and CUDA that every
// allocation of a library passes through, so they do not show who took the memory. It is the only
// such table: the choice of a site's frame and the call trees both use it.
//
// It holds memory's own plumbing only (containers, memory resources, caches, dispatch). A library's
// work (cudf::detail, at::native::mm) is what a user looks for when there is no line of their own.
#pragma once

#include "report/symbols/stack_frame.hpp"

namespace memlab::report {

/// True for frames in the table. C++ functions are compared by their names without return type,
/// parameters and template arguments; namespaces by whole names: thrust::malloc, not
/// thrusters::fire.
bool is_allocator_frame(const StackFrame& frame);

}  // namespace memlab::report
