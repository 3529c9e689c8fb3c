// Byte offsets in the CPython structures that frames are read from, for one minor version.
//
// The offsets are those of the headers (Include/internal) of a release build for x86-64; they do
// not change between patch releases. Only versions whose frames the tests compare with the
// interpreter's public API have a row. A row is used only if matches() finds that the running
// interpreter's types have the sizes that it implies.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::profiler::python {

struct Layout {
    int minor;  ///< of 3.minor

    // PyThreadState. Up to 3.12 frames are found through a list of records (_PyCFrame) on the C
    // stack, one per activation of the evaluation loop. Later versions have a shim frame there, the
    // outermost frame of each activation.
    bool has_cframes;
    std::size_t thread_frame;  ///< to the innermost record, or to the innermost frame
    std::size_t thread_interpreter;
    std::size_t cframe_frame;
    std::size_t cframe_previous;

    // _PyInterpreterFrame.
    std::size_t frame_code;
    std::size_t frame_previous;
    std::size_t frame_instruction;
    std::size_t frame_owner;
    std::size_t frame_is_entry;  ///< 3.11: flag of an activation's outermost frame; 0: shims
    std::size_t frame_locals;

    // PyCodeObject.
    std::size_t code_filename;
    std::size_t code_qualname;
    std::size_t code_line_table;
    std::size_t code_first_line;
    std::size_t code_first_traceable;
    std::size_t code_version;  ///< 0: there is none
    std::size_t code_bytes;

    // PyASCIIObject, PyCompactUnicodeObject, PyUnicodeObject, PyGenObject.
    std::size_t ascii_size;
    std::size_t compact_size;
    std::size_t unicode_size;
    std::size_t generator_frame;
};

// The same in all versions that have a row.
inline constexpr std::size_t object_type = 8;
inline constexpr std::size_t object_count = 16;  ///< PyVarObject::ob_size
inline constexpr std::size_t bytes_data = 32;
inline constexpr std::size_t text_length = 16;
inline constexpr std::size_t text_state = 32;
inline constexpr std::size_t type_basic_size = 32;
inline constexpr std::uint8_t owned_by_generator = 1;
inline constexpr std::uint8_t owned_by_c_stack = 3;  ///< a shim
inline constexpr std::size_t instruction_size = 2;

}  // namespace memlab::profiler::python
