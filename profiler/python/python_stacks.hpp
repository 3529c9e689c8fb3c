// Merges Python frames into native call stacks.
//
// The evaluation loop is one C function (_PyEval_EvalFrameDefault), and one activation of it runs
// many Python functions: calls from Python to Python stay in the loop. Each activation has a record
// on the C stack. The native frame that contains the record is that activation, whatever the
// compiler did to the function (splitting, inlining, no symbols); it is replaced by the
// activation's Python frames. In 3.9, without such records, an activation is a native frame in the
// function's code (loop_code.hpp), and there must be as many as Python frames. The interpreter's
// other native frames are dropped if it is an object of its own. Python frames of another
// interpreter or C stack (greenlets) match no native frame; the stack stays native then. If the
// native stack ends early (in JIT code), the remaining Python frames are appended: they are its
// callers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "profiler/python/collector.hpp"
#include "profiler/python/frame_interner.hpp"
#include "profiler/python/interpreter.hpp"
#include "profiler/python/merged_stack_cache.hpp"
#include "profiler/python/nn_modules.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/stack_definitions.hpp"
#include "profiler/stack_table.hpp"

namespace memlab::profiler::python {

/// A stack for StackTable: native return addresses and Python frame ids, leaf first.
struct MergedStack {
    std::size_t depth = 0;
    bool truncated = false;
    StackTable::PythonWords python{};  ///< which of the words are Python frames
    std::span<std::uint64_t> words;    ///< the buffer; [0, depth) is set
};

enum class Mode : std::uint8_t {
    off,
    automatic,  ///< verified against the public API once
    verify,     ///< verified whenever the thread holds the GIL
};

/// Thread-safety: all member functions, from any thread.
class PythonStacks {
  public:
    /// `definitions` must outlive it. `depth`: max. frames per stack.
    PythonStacks(Mode mode, std::size_t depth, StackDefinitions& definitions);

    void set_depth(std::size_t depth) { depth_.store(depth, std::memory_order_relaxed); }

    /// Attaches to the interpreter that contains `address` (0: none), unless that was done. While
    /// another thread does so this one waits, since its stack would lack Python frames otherwise:
    /// up to 100 ms; after one timeout no thread waits again.
    void attach(std::uintptr_t address);

    /// For stacks that end early: scans the stack above `sp` for a return address into an
    /// interpreter; 0: none. Only done for the first such stacks.
    std::uintptr_t interpreter_above(std::uintptr_t sp);

    /// Call before an object is unloaded: keeps the interpreter loaded. Takes the loader's lock.
    void before_unload();

    /// True until an interpreter is attached or Python stacks are turned off.
    bool searching() const { return state_.load(std::memory_order_relaxed) == State::searching; }

    /// True once an interpreter is attached.
    bool found() const { return state_.load(std::memory_order_acquire) == State::on; }

    /// Whether the calling thread is inside the interpreter's garbage collector. Not while the
    /// interpreter ends: what is freed then was not held until a collection.
    bool inside_collector() const {
        if (!collector_.runs()) [[likely]] {
            return false;
        }
        return collects_here();
    }

    NnModules& nn_modules() { return nn_modules_; }

    // The rest requires found().

    /// Reads the calling thread's Python frames and their ids, which verifies them. False if there
    /// are none to merge. Throws std::bad_alloc.
    bool read(Frames& frames);

    /// A hash of all that the calling thread's Python frames depend on, which takes a third of what
    /// reading them does. What is found by it was read before, so verified as far as it could be.
    FramesHash hash() const {
        return mode_ == Mode::verify ? FramesHash{}
                                     : hash_frames(interpreter_, frame_interner_->nn_call());
    }

    /// The id of the stack of nn.Modules that the calling thread's frames, with that hash(), call;
    /// 0: none. Throws std::bad_alloc.
    std::uint32_t nn_modules_of(const FramesHash& frames) {
        if (frames.hash != 0 && frames.nn_modules == 0) [[likely]] {
            return 0;
        }
        const std::uint32_t id = nn_modules_.find(frames.nn_modules);
        return id != 0 ? id : read_nn_modules_of(frames);
    }

    /// Where on its stack the calling thread runs Python innermost; UINTPTR_MAX: nowhere.
    std::uintptr_t innermost_activation() const;

    /// Whether the code at that return address may be the interpreter's.
    bool may_run_in(std::uintptr_t address) const {
        const std::uintptr_t bytes = interpreter_.code_end - interpreter_.code_start;
        return bytes == 0 || address - interpreter_.code_start <= bytes;
    }

    /// Replaces each activation in the native stack by its frames. False if the native stack has no
    /// activation of them; `merged` is unspecified then. Truncates to the capacity of `merged`.
    bool merge(const unwind::StackView& native, const Frames& frames, MergedStack& merged) const;

    MergedStackCache& merged_stack_cache() { return *merged_stacks_; }

    /// The id of trace::forward_marker. Throws std::bad_alloc.
    std::uint32_t forward_marker() { return frame_interner_->forward_marker(); }

  private:
    enum class State : std::uint8_t { off, searching, on };

    void await_search();
    bool fit(const unwind::StackView& native, const Frames& frames) const;
    void find_collector(const Interpreter& interpreter);
    std::uint32_t read_nn_modules_of(const FramesHash& frames);
    bool collects_here() const;
    void turn_off(std::string_view why);

    const Mode mode_;
    std::atomic<std::size_t> depth_;
    StackDefinitions& definitions_;
    std::atomic<State> state_;
    std::atomic<int> scans_{0};
    std::atomic<bool> pinned_{false};
    std::atomic<bool> search_started_{false};
    std::atomic<bool> wait_timed_out_{false};
    std::atomic<bool> compared_{false};  ///< in Mode::verify never
    Collector collector_;
    NnModules nn_modules_;
    // Written by the thread that attaches, before state_ becomes `on`.
    Interpreter interpreter_;
    std::unique_ptr<FrameInterner> frame_interner_;
    std::unique_ptr<MergedStackCache> merged_stacks_;
};

}  // namespace memlab::profiler::python
