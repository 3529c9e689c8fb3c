// The layouts of the tested CPython versions: constants, so that the offsets are compiled into the
// frame reader.
#pragma once

#include <string>

#include "profiler/python/layout.hpp"

namespace memlab::profiler::python {

/// As in its _Py_DebugOffsets, which lack the first traceable instruction.
inline constexpr Layout layout_of_3_13 = {.minor = 13,
                                          .has_cframes = false,
                                          .thread_frame = 72,
                                          .thread_interpreter = 16,
                                          .cframe_frame = 0,
                                          .cframe_previous = 0,
                                          .frame_code = 0,
                                          .frame_previous = 8,
                                          .frame_instruction = 56,
                                          .frame_owner = 70,
                                          .frame_is_entry = 0,
                                          .frame_locals = 72,
                                          .code_filename = 112,
                                          .code_qualname = 128,
                                          .code_line_table = 136,
                                          .code_first_line = 68,
                                          .code_first_traceable = 184,
                                          .code_version = 92,
                                          .code_bytes = 200,
                                          .ascii_size = 40,
                                          .compact_size = 56,
                                          .unicode_size = 64,
                                          .generator_frame = 72};

/// Of 3.14 and 3.15: references of frames have tags, and some fields lie further on.
constexpr Layout layout_since_3_14(int minor) {
    Layout layout = layout_of_3_13;
    layout.minor = minor;
    layout.frame_tags = 3;
    layout.frame_owner = 74;
    layout.frame_locals = 80;
    layout.code_first_traceable = 192;
    layout.code_bytes = 208;
    return layout;
}

inline constexpr Layout layout_of_3_10 = {.minor = 10,
                                          .has_cframes = true,
                                          .has_frame_objects = true,
                                          .thread_frame = 48,
                                          .thread_frame_object = 24,
                                          .thread_interpreter = 16,
                                          .interpreter_state_bytes = 856,
                                          .cframe_frame = 0,
                                          .cframe_previous = 8,
                                          .frame_code = 32,
                                          .frame_previous = 24,
                                          .frame_instruction = 96,
                                          .frame_instruction_unit = 2,
                                          .frame_owner = 0,
                                          .frame_is_entry = 0,
                                          .frame_locals = 0,
                                          .frame_object_locals = 352,
                                          .code_filename = 104,
                                          .code_qualname = 112,
                                          .code_line_table = 120,
                                          .line_table = LineTable::pairs,
                                          .code_first_line = 40,
                                          .code_first_traceable = 0,
                                          .code_version = 0,
                                          .code_bytes = 176,
                                          .ascii_size = 48,
                                          .compact_size = 72,
                                          .unicode_size = 80,
                                          .generator_frame = 88};

/// Nothing but frame objects, with a few more members; so have generators.
constexpr Layout layout_of_3_9() {
    Layout layout = layout_of_3_10;
    layout.minor = 9;
    layout.has_cframes = false;
    layout.thread_frame = layout.thread_frame_object;
    layout.frame_instruction = 104;
    layout.frame_instruction_unit = 1;
    layout.frame_object_locals = 360;
    layout.line_table = LineTable::changes;
    layout.generator_frame = 96;
    return layout;
}

inline constexpr Layout layouts[] = {
    layout_of_3_9(),
    layout_of_3_10,
    {.minor = 11,
     .has_cframes = true,
     .thread_frame = 56,
     .thread_interpreter = 16,
     .cframe_frame = 8,
     .cframe_previous = 16,
     .frame_code = 32,
     .frame_previous = 48,
     .frame_instruction = 56,
     .frame_owner = 69,
     .frame_is_entry = 68,
     .frame_locals = 72,
     .code_filename = 112,
     .code_qualname = 128,
     .code_line_table = 136,
     .code_first_line = 72,
     .code_first_traceable = 168,
     .code_version = 0,
     .code_bytes = 184,
     .ascii_size = 48,
     .compact_size = 72,
     .unicode_size = 80,
     .generator_frame = 80},
    {.minor = 12,
     .has_cframes = true,
     .thread_frame = 56,
     .thread_interpreter = 16,
     .cframe_frame = 0,
     .cframe_previous = 8,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .frame_is_entry = 0,
     .frame_locals = 72,
     .code_filename = 112,
     .code_qualname = 128,
     .code_line_table = 136,
     .code_first_line = 68,
     .code_first_traceable = 176,
     .code_version = 92,
     .code_bytes = 192,
     .ascii_size = 40,
     .compact_size = 56,
     .unicode_size = 64,
     .generator_frame = 72},
    layout_of_3_13,
    layout_since_3_14(14),
    layout_since_3_14(15),
};

/// The layout of CPython 3.`minor`; null if untested.
const Layout* find_layout(int minor);

/// "3.11, 3.12": the versions that have a row.
std::string tested_versions();

}  // namespace memlab::profiler::python
