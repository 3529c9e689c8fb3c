// Reads the calling thread's Python frames from its thread state, without the GIL.
//
// The thread usually does not hold the GIL: PyTorch and ctypes release it around their calls. It is
// not needed: only the thread itself pushes and pops its frames. A frame holds references to its
// code object, and that to its texts, so all of them stay alive during the call. Only the thread
// state can be freed by another thread, when the interpreter shuts down during a call; the
// interpreter is marked as finalizing first. So the root is read before the mark is checked: if it
// is not set, the root was valid.
//
// Cheap consistency checks are made on all that is read (records are on this C stack, a frame's
// code is a code object); if one fails the stack has no Python frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "profiler/python/code_location_cache.hpp"
#include "profiler/python/interpreter.hpp"
#include "profiler/word_mix.hpp"

namespace memlab::profiler::python {

/// A frame's code location. Valid while the frame is active.
struct RawFrame {
    const void* code;
    std::int32_t offset;  ///< of the instruction, in bytes; negative before the first one
    std::uint32_t id;     ///< PythonFrameDef::id of its location; 0: not known yet
};

/// The frames run by one activation of the interpreter's evaluation loop.
struct Activation {
    std::uint64_t stack_address : 48;  ///< within the loop's frame on the C stack; 3.9: 0
    std::uint64_t end : 16;            ///< one past its last frame; it begins at the previous end
};

/// The header of a FrameBuffer, whose frames follow in memory.
struct Frames {
    static constexpr std::size_t max_activations = 64;

    const std::size_t max_frames;
    std::size_t frame_count = 0;
    std::size_t activation_count = 0;
    bool truncated = false;    ///< there are more frames than the limit allows
    bool implausible = false;  ///< a check failed: the layout does not fit this interpreter
    bool in_main_interpreter = false;
    bool all_known = true;  ///< every frame has its id
    void* thread_state = nullptr;
    Activation activations[max_activations];  ///< innermost first; [0, activation_count)

    /// Innermost first; [0, frame_count).
    RawFrame* frames() { return reinterpret_cast<RawFrame*>(this + 1); }
    const RawFrame* frames() const { return reinterpret_cast<const RawFrame*>(this + 1); }

  protected:
    explicit Frames(std::size_t capacity) : max_frames(capacity) {}
};

template <std::size_t capacity>
struct FrameBuffer : Frames {
    static_assert(capacity <= 256);
    FrameBuffer() : Frames(capacity) {
        static_assert(sizeof(FrameBuffer) == sizeof(Frames) + sizeof(storage));
    }
    RawFrame storage[capacity];
};

/// Fills `out` with at most `limit` frames; none for a thread that runs no Python. Frames whose
/// location is in `cache` get its id and are not checked again. Takes no lock, allocates nothing.
void read_frames(const Interpreter& interpreter, std::size_t limit, const CodeLocationCache& cache,
                 Frames& out);

/// The code by which PyTorch calls an nn.Module: its first local variable is the nn.Module.
struct NnModuleCall {
    const void* code = nullptr;  ///< null: not known
    std::uint64_t identity = 0;  ///< identity_of_nn_call(): another code object may get its address
};
/// Of a code object.
inline std::uint64_t identity_of_nn_call(const Layout& layout, const void* code) {
    return layout.code_version != 0 ? versioned_identity(layout, code)
                                    : read<std::uint64_t>(code, layout.code_line_table) ^
                                          read<std::uint32_t>(code, layout.code_first_line);
}

/// A hash of all that read_frames() depends on, whatever the limit.
struct FramesHash {
    std::uint64_t hash = 0;  ///< 0: they must be read
    bool none = false;       ///< the thread runs no Python
    /// By hash_nn_module(), of all that read_nn_modules() reads; 0: none. Only beside a `hash`.
    std::uint64_t nn_modules = 0;
};
/// In every FramesHash::hash but 0.
inline constexpr std::uint64_t hashed_frames = std::uint64_t{1} << 63;

/// Of one nn.Module more, not 0.
inline std::uint64_t hash_nn_module(std::uint64_t hash, std::uintptr_t nn_module) {
    return mix(hash ^ mix_factor, nn_module) | 1;
}

/// Only for interpreters whose code objects have versions (3.12 on): an equal hash implies the same
/// frames, except for a collision of 63 bits. Takes no lock, allocates nothing.
FramesHash hash_frames(const Interpreter& interpreter, const NnModuleCall& nn_call = {});

/// The addresses of the nn.Modules that the calling thread's frames call, innermost first; returns
/// how many. Takes no lock, allocates nothing, reads none of the objects.
std::size_t read_nn_modules(const Interpreter& interpreter, const NnModuleCall& nn_call,
                            std::span<std::uintptr_t> modules);

}  // namespace memlab::profiler::python
