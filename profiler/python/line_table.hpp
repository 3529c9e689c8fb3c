// Decodes the location table of a code object (PEP 626): in the format of CPython 3.11 and later
// (Objects/locations.md), and in that of 3.10 (Objects/lnotab_notes.txt).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace memlab::profiler::python {

struct LineAt {
    int line = 0;           ///< 0: the instruction has no line
    std::size_t bytes = 0;  ///< length of the table's prefix that determines the line
};

/// The line of the instruction `offset` bytes into the code; a negative offset gives `first_line`,
/// the code object's. Never reads outside `table`: one that ends before `offset` gives no line.
LineAt line_at(std::span<const unsigned char> table, int first_line, std::ptrdiff_t offset);

/// The same of a table in the format of 3.10.
LineAt line_at_in_pairs(std::span<const unsigned char> table, int first_line,
                        std::ptrdiff_t offset);

}  // namespace memlab::profiler::python
