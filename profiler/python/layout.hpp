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

enum class LineTable : std::uint8_t {
    changes,    ///< co_lnotab of 3.9
    pairs,      ///< co_linetable of 3.10
    locations,  ///< of later versions
};

struct Layout {
    int minor;  ///< of 3.minor

    // PyThreadState. Up to 3.12 frames are found through a list of records (CFrame, _PyCFrame) on
    // the C stack, one per activation of the evaluation loop. Later versions have a shim frame
    // there, the outermost frame of each activation. In 3.9 and 3.10 an activation runs one frame,
    // an object (PyFrameObject) in a list of its own: 3.10 has records that do not point to it, 3.9
    // has none.
    bool has_cframes;
    bool has_frame_objects = false;
    std::size_t thread_frame;             ///< to the innermost record, or to the innermost frame
    std::size_t thread_frame_object = 0;  ///< 3.10: to the innermost frame object
    std::size_t thread_interpreter;
    /// 3.9, 3.10: of PyInterpreterState, the part that the garbage collector's state lies in.
    std::size_t interpreter_state_bytes = 0;
    std::size_t cframe_frame;
    std::size_t cframe_previous;

    // _PyInterpreterFrame; in 3.9 and 3.10 PyFrameObject.
    std::size_t frame_code;
    /// Bits of a frame's references, to its code and to its locals, which are not the address's.
    std::uintptr_t frame_tags = 0;
    std::size_t frame_previous;
    std::size_t frame_instruction;   ///< its address; of frame objects f_lasti, an offset
    int frame_instruction_unit = 1;  ///< of f_lasti, in bytes
    std::size_t frame_owner;
    std::size_t frame_is_entry;  ///< 3.11: flag of an activation's outermost frame; 0: shims
    std::size_t frame_locals;
    std::size_t frame_object_locals = 0;  ///< of frame objects instead

    // PyCodeObject.
    std::size_t code_filename;
    std::size_t code_qualname;  ///< in 3.9 and 3.10, which have none, the name
    std::size_t code_line_table;
    LineTable line_table = LineTable::locations;
    std::size_t code_first_line;
    std::size_t code_first_traceable;  ///< 0: there is none
    std::size_t code_version;          ///< 0: there is none
    std::size_t code_bytes;

    // PyASCIIObject, PyCompactUnicodeObject, PyUnicodeObject, PyGenObject.
    std::size_t ascii_size;
    std::size_t compact_size;
    std::size_t unicode_size;
    std::size_t generator_frame;

    /// Of the frame's first local variable.
    constexpr std::size_t first_local() const {
        return has_frame_objects ? frame_object_locals : frame_locals;
    }

    /// Whether nothing on the C stack tells where an activation is.
    constexpr bool without_records() const { return has_frame_objects && !has_cframes; }
};

// The same in all versions that have a row.
inline constexpr std::size_t object_type = 8;
inline constexpr std::size_t object_count = 16;  ///< PyVarObject::ob_size
inline constexpr std::size_t bytes_data = 32;
inline constexpr std::size_t text_length = 16;
inline constexpr std::size_t text_state = 32;
inline constexpr std::size_t type_basic_size = 32;
inline constexpr std::uint8_t owned_by_generator = 1;
inline constexpr std::uint8_t owned_by_c_stack =
    3;  ///< a shim; in 3.14 and later "by the interpreter"
inline constexpr std::size_t instruction_size = 2;

}  // namespace memlab::profiler::python
