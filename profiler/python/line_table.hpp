// Decodes the line table of a code object: in the format of CPython 3.11 and later
// (Objects/locations.md), and in those of 3.10 and 3.9 (their Objects/lnotab_notes.txt).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "profiler/python/layout.hpp"

namespace memlab::profiler::python {

struct LineAt {
    int line = 0;           ///< 0: the instruction has no line
    std::size_t bytes = 0;  ///< length of the table's prefix that determines the line
};

/// The line of the instruction `offset` bytes into the code; a negative offset gives `first_line`,
/// the code object's. Never reads outside `table`: one that ends before `offset` gives no line; in
/// 3.9 the last line goes on, so that the whole table determines it.
LineAt line_at(LineTable format, std::span<const unsigned char> table, int first_line,
               std::ptrdiff_t offset);

}  // namespace memlab::profiler::python
