// What a CPython says of its own structures, from 3.13 on.
//
// _PyRuntime, an exported variable, begins with _Py_DebugOffsets: the offsets of what debuggers
// read, filled in by the compiler that built the interpreter. They are compared with memlab's own
// before the first frame is read, and by memlab-run --doctor in the file. So what a release, a
// patch or a build option has moved is seen before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "profiler/python/layout.hpp"

namespace memlab::profiler::python {

/// The first version that has them.
inline constexpr int debug_offsets_from_minor = 13;

/// As much of _PyRuntime as is read of it.
inline constexpr std::size_t debug_offsets_bytes = 102 * sizeof(std::uint64_t);

/// Whether the interpreter has no GIL, by its _PyRuntime; false where that does not say so.
bool says_free_threaded(std::span<const std::byte> runtime);

/// What is not as the layout has it, to stand behind "Python 3.13.1 "; empty if all is. `runtime`:
/// the beginning of _PyRuntime, empty where there is none. Only for layouts of
/// debug_offsets_from_minor and later.
std::string difference_to(const Layout& layout, std::span<const std::byte> runtime);

}  // namespace memlab::profiler::python
