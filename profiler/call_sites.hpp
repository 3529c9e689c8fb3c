// Captures call stacks, native and Python, and interns them. A stack that is known costs one
// look-up by the hash of its parts. Runs before any lock is held; its own locks are taken before
// the recorder's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "profiler/python/python_stacks.hpp"
#include "profiler/scratch.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/stack_definitions.hpp"
#include "profiler/stack_hash.hpp"
#include "profiler/stack_table.hpp"
#include "profiler/unwind/unloads.hpp"

namespace memlab::profiler {

/// Thread-safety: all member functions, from any thread. They may throw std::bad_alloc.
class CallSites {
  public:
    /// `depth`: max. frames per stack; 0: no stacks. New stacks are passed to `definitions`.
    CallSites(StackDefinitions& definitions, std::uint32_t depth, std::uint32_t max_stacks,
              python::Mode python)
        : stack_depth_(depth),
          stacks_(definitions, max_stacks),
          python_(python, depth, definitions) {}

    /// The id of the caller's stack; 0 when stacks are off.
    std::uint32_t capture_call_site() {
        if (stack_depth_ == 0) {
            return 0;
        }
        if (!python_.searching()) {
            return capture();
        }
        attach_python();
        const std::uint32_t id = capture();
        attach_python();
        // Found by this thread, or by another one during the walk.
        return python_.found() ? capture() : id;
    }

    /// Whether the calling thread is inside the garbage collector of Python.
    bool inside_collector() const { return python_.inside_collector(); }

    void before_unload() { python_.before_unload(); }

  private:
    /// If a stack led through a Python interpreter.
    void attach_python() {
        if (python_.searching() && stacks_.interpreter() != 0) [[unlikely]] {
            python_.attach(stacks_.interpreter());
        }
    }

    // Too large for small program stacks: in Scratch memory.
    struct DeepStack {
        CapturedStack native;
        python::FrameBuffer<CapturedStack::max_depth> frames;
        std::uint64_t merged[CapturedStack::max_depth];
    };

    [[gnu::hot]] std::uint32_t capture() {
        if (stack_depth_ > ShortStack::max_depth) [[unlikely]] {
            return capture_deep();
        }
        ShortStack native;
        const std::uint64_t epoch = capture_native(native);
        return python_.found() ? intern_merged(native, epoch) : intern(native, epoch);
    }

    [[gnu::noinline]] std::uint32_t capture_deep() {
        const Scratch<DeepStack> scratch;
        DeepStack* const deep = scratch.get();
        if (deep == nullptr) {
            throw std::bad_alloc();
        }
        const std::uint64_t epoch = capture_native(deep->native);
        return python_.found() ? intern_merged(deep->native, deep->frames, epoch,
                                               [&](const StackHash& parts) {
                                                   return merge(deep->native, deep->frames,
                                                                deep->merged, parts, epoch);
                                               })
                               : intern(deep->native, epoch);
    }

    /// Captures the calling thread's stack; returns its unload epoch.
    template <std::size_t capacity>
    [[gnu::always_inline]] std::uint64_t capture_native(StackBuffer<capacity>& native) {
        capture_stack(native, stack_depth_);
        const std::uint64_t epoch =
            unwind::is_unloading() ? StackTable::no_epoch : unwind::unload_epoch();
        if (python_.searching() && native.ends_early) [[unlikely]] {
            python_.attach(python_.interpreter_above(
                reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))));
        }
        return epoch;
    }

    // Not inlined, so that `frames` does not take stack space during the native walk, which would
    // then use colder cache lines.
    [[gnu::hot, gnu::noinline]] std::uint32_t intern_merged(const ShortStack& native,
                                                            std::uint64_t epoch) {
        python::FrameBuffer<ShortStack::max_depth> frames;
        return intern_merged(native, frames, epoch, [&](const StackHash& parts) {
            return merge_short(native, frames, parts, epoch);
        });
    }

    template <class Merge>
    [[gnu::always_inline]] std::uint32_t intern_merged(const StackView& native,
                                                       python::Frames& frames, std::uint64_t epoch,
                                                       const Merge& merge_parts) {
        if (!python_.read(frames)) {
            return intern(native, epoch);
        }
        const StackHash parts = python::hash_parts(native, frames, epoch);
        const std::uint32_t known = python_.merged_stack_cache().find(parts);
        return known != 0 ? known : merge_parts(parts);
    }

    std::uint32_t intern(const StackView& native, std::uint64_t epoch) {
        return stacks_.intern({native.addresses, native.depth}, native.truncated, epoch);
    }

    [[gnu::noinline]] std::uint32_t merge_short(const StackView& native,
                                                const python::Frames& frames,
                                                const StackHash& parts, std::uint64_t epoch) {
        std::uint64_t words[ShortStack::max_depth];
        return merge(native, frames, words, parts, epoch);
    }

    std::uint32_t merge(const StackView& native, const python::Frames& frames,
                        std::span<std::uint64_t> words, const StackHash& parts,
                        std::uint64_t epoch) {
        python::MergedStack merged;
        merged.words = words;
        const std::uint32_t id =
            python_.merge(native, frames, merged)
                ? stacks_.intern(words.first(merged.depth), merged.truncated, epoch, &merged.python)
                : intern(native, epoch);
        if (id != 0 && epoch != StackTable::no_epoch) {
            python_.merged_stack_cache().insert(parts, id);
        }
        return id;
    }

    const std::uint32_t stack_depth_;
    StackTable stacks_;
    python::PythonStacks python_;
};

}  // namespace memlab::profiler
