// The lines of a code object: PEP 626's location table, as CPython 3.11 and later store it
// (Objects/locations.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace memlab::profiler::python {

struct LineAt {
    int line = 0;           ///< 0: the instruction belongs to no line
    std::size_t bytes = 0;  ///< how much of the table decides: the same beginning, the same line
};

/// The line of the instruction `offset` bytes into the code. `first_line` is the code object's; a
/// negative offset is the function's beginning. Never reads outside `table`: one that is cut off or
/// that does not reach `offset` gives no line.
LineAt line_at(std::span<const unsigned char> table, int first_line, std::ptrdiff_t offset);

}  // namespace memlab::profiler::python
