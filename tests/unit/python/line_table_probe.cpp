// Exports memlab's reader of CPython's line tables, for test_line_table.py to call.
#include "profiler/python/line_table.hpp"

using namespace memlab::profiler::python;

// The first instruction (a byte offset) whose line is not the one of `lines` (one for each
// instruction), or -1. `pairs`: the table is in the format of 3.10.
extern "C" __attribute__((visibility("default"))) long memlab_first_wrong_line(
    const unsigned char* table, std::size_t size, int first_line, const int* lines,
    std::size_t instructions, int pairs) {
    const auto line_of = pairs != 0 ? line_at_in_pairs : line_at;
    for (std::size_t i = 0; i < instructions; ++i) {
        const auto offset = static_cast<std::ptrdiff_t>(2 * i);
        const auto at = line_of({table, size}, first_line, offset);
        // What was read decides alone: the same beginning gives the same line.
        if (at.line != lines[i] || at.bytes > size ||
            line_of({table, at.bytes}, first_line, offset).line != lines[i]) {
            return offset;
        }
    }
    return -1;
}
