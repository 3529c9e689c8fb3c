// Call stacks with the Python functions in them.
//
// The interpreter runs Python code in a loop, one C function (_PyEval_EvalFrameDefault), and one
// activation of it runs many Python functions: a call from Python to Python stays in the loop. Each
// activation keeps a record on the C stack. The native frame in which such a record lies is that
// activation, whatever the compiler made of the function (parts moved away, inlining, no symbols);
// the Python frames that it runs stand in its place. The interpreter's other C functions in between
// are left out when they are a binary of their own: they say nothing. What belongs to another
// interpreter or to another C stack (greenlets) fits no native frame, and the stack stays native.
// But where the native stack ends at a frame whose caller nothing tells (a JIT's code), the Python
// frames that are left called it, and follow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "profiler/python/frame_interner.hpp"
#include "profiler/python/interpreter.hpp"
#include "profiler/python/merged_stack_cache.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/stack_definitions.hpp"
#include "profiler/stack_table.hpp"

namespace memlab::profiler::python {

/// A stack as the StackTable takes it: native return addresses and numbers of Python frames, leaf
/// first.
struct MergedStack {
    std::size_t depth = 0;
    bool truncated = false;
    StackTable::PythonWords python{};  ///< which of the words are Python frames
    std::span<std::uint64_t> words;    ///< the room for them; [0, depth) is set
};

enum class Mode : std::uint8_t {
    off,
    automatic,  ///< compared with the interpreter's own account once
    verify,     ///< compared whenever the thread holds the GIL
};

/// Thread-safety: all member functions, from any thread.
class PythonStacks {
  public:
    /// `definitions` must outlive it. `depth` frames of a stack are kept at most.
    PythonStacks(Mode mode, std::size_t depth, StackDefinitions& definitions);

    /// Reads what is needed of the interpreter that `address` lies in, unless that was done. While
    /// another thread does it this one waits, or its stack would have no Python frames: for 100 ms
    /// at most, and but once in vain. 0: there is none yet.
    void look(std::uintptr_t address);

    /// An address in an interpreter that the calling thread's stack seems to lead through above
    /// `sp`, by its words alone, where nothing tells the frames; 0: none. Tried for the first
    /// stacks of that kind only.
    std::uintptr_t interpreter_above(std::uintptr_t sp);

    /// Something will be unloaded: not the interpreter. Takes the loader's lock.
    void before_unload();

    /// True while it is worth looking.
    bool looking() const { return state_.load(std::memory_order_relaxed) == State::looking; }

    /// True once an interpreter was found that can be read.
    bool found() const { return state_.load(std::memory_order_acquire) == State::on; }

    // The rest only once it was found.

    /// The calling thread's Python frames, with their numbers. False when its stack has none to
    /// add. Throws std::bad_alloc.
    bool read(Frames& frames);

    /// Puts `frames` where the activations that run them are in the native stack. False when none
    /// was found there; `merged` says nothing then. What has no room in it is left out.
    bool merge(const StackView& native, const Frames& frames, MergedStack& merged) const;

    /// What was merged before.
    MergedStackCache& merged_stack_cache() { return *merged_stacks_; }

  private:
    enum class State : std::uint8_t { off, looking, on };

    void await_search();
    void turn_off(std::string_view why);

    const Mode mode_;
    const std::size_t depth_;
    StackDefinitions& definitions_;
    std::atomic<State> state_;
    std::atomic<int> looks_above_{0};
    std::atomic<bool> pinned_{false};
    std::atomic<bool> searching_{false};
    std::atomic<bool> waited_in_vain_{false};
    std::atomic<bool> compared_{false};
    // Filled in by the thread that searches, before `on`.
    Interpreter interpreter_;
    std::unique_ptr<FrameInterner> numbers_;
    std::unique_ptr<MergedStackCache> merged_stacks_;
};

}  // namespace memlab::profiler::python
