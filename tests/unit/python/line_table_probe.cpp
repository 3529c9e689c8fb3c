// Exports memlab's reader of CPython's line tables, for test_line_table.py to call.
#include "profiler/python/line_table.hpp"

using namespace memlab::profiler::python;

// The first instruction (a byte offset) whose line is not the one of `lines` (one for each
// instruction), or -1. `format`: a LineTable.
extern "C" __attribute__((visibility("default"))) long memlab_first_wrong_line(
    const unsigned char* table, std::size_t size, int first_line, const int* lines,
    std::size_t instructions, int format) {
    const auto line_of = [format](std::span<const unsigned char> bytes, int first,
                                  std::ptrdiff_t offset) {
        return line_at(static_cast<LineTable>(format), bytes, first, offset);
    };
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
