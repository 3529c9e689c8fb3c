// The Python frames of the calling thread, read from its thread state.
//
// The thread usually does not hold the GIL: PyTorch and ctypes release it around their calls. That
// is as it should be: only the thread itself pushes and pops its frames, and it is here. A frame
// holds its code object and that its texts, so all of them stay during the call. What can be taken
// away by another thread is the thread state alone, when the interpreter ends while a thread is
// still in a call; it is marked as ending before. So the root is read first and the mark after it:
// unmarked, what was read was good.
//
// Everything read is checked as far as that is cheap (what the records on the C stack are in, that
// a frame's code is a code object); on anything unexpected the stack has no Python frames.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/python/code_location_cache.hpp"
#include "profiler/python/interpreter.hpp"

namespace memlab::profiler::python {

/// A frame by what identifies its place: valid while the frame stands.
struct RawFrame {
    const void* code;
    std::int32_t offset;   ///< of the instruction, in bytes; negative before the first one
    std::uint32_t number;  ///< of its place, if that is known already; else 0
};

/// Frames that one activation of the interpreter's loop runs.
struct Activation {
    std::uint64_t on_stack : 48;  ///< lies in the loop's frame on the C stack
    std::uint64_t end : 16;       ///< its frames end here; they begin where the one before ended
};

/// All but the frames, which lie behind it: a FrameRoom.
struct Frames {
    static constexpr std::size_t max_activations = 64;

    const std::size_t max_frames;
    std::size_t frame_count = 0;
    std::size_t activation_count = 0;
    bool truncated = false;    ///< there are more than the limit, or than could be told apart
    bool implausible = false;  ///< something was not what it should be: do not rely on this layout
    bool in_main_interpreter = false;
    bool all_numbered = true;  ///< each frame's place was known
    void* thread_state = nullptr;
    Activation activations[max_activations];  ///< innermost first; [0, activation_count)

    /// Innermost first; [0, frame_count).
    RawFrame* frames() { return reinterpret_cast<RawFrame*>(this + 1); }
    const RawFrame* frames() const { return reinterpret_cast<const RawFrame*>(this + 1); }

  protected:
    explicit Frames(std::size_t room) : max_frames(room) {}
};

template <std::size_t room>
struct FrameRoom : Frames {
    static_assert(room <= 256);
    FrameRoom() : Frames(room) {
        static_assert(sizeof(FrameRoom) == sizeof(Frames) + sizeof(of_frames));
    }
    RawFrame of_frames[room];
};

/// Fills `out` with at most `limit` frames; none for a thread that runs no Python. What is checked
/// of a frame, and its number, is taken from `known` where it says so. Takes no lock, allocates
/// nothing.
void read_frames(const Interpreter& interpreter, std::size_t limit, const CodeLocationCache& known,
                 Frames& out);

}  // namespace memlab::profiler::python
