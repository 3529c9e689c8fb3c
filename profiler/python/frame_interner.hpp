// Gives each Python source location (function, file, line) an id, and defines it in the recording
// once.
//
// Texts are read when a location is first seen; nothing of a frame is accessed after the capture.
// Known locations are found in a CodeLocationCache.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "profiler/python/code_location_cache.hpp"
#include "profiler/python/frames.hpp"
#include "profiler/stack_definitions.hpp"
#include "threads/mutex.hpp"

namespace memlab::profiler::python {

struct SourceLocation {
    std::string function;
    std::string file;
    int line = 0;
    int first_line = 0;

    bool operator==(const SourceLocation&) const = default;
};

/// The frame's source location. `table_bytes`, if not null, gets the length of the line table's
/// prefix that determines the line. Throws std::bad_alloc.
SourceLocation read_location(const Interpreter& interpreter, const RawFrame& frame,
                             std::size_t* table_bytes = nullptr);

/// Thread-safety: any number of threads. Locks: its own for a location that is not cached, and
/// under it what `definitions` takes.
class FrameInterner {
  public:
    /// `definitions` must outlive it. Throws std::bad_alloc.
    explicit FrameInterner(StackDefinitions& definitions);

    /// Fills in the ids of `count` frames of the calling thread that are 0. False if one that was
    /// not seen before is no frame of such an interpreter. Throws std::bad_alloc.
    [[nodiscard]] bool assign_ids(const Interpreter& interpreter, bool in_main_interpreter,
                                  RawFrame* frames, std::size_t count);

    /// The id of trace::forward_marker. Throws std::bad_alloc.
    std::uint32_t forward_marker();

    /// The code by which nn.Modules are called, once a frame of it was seen: Module's
    /// _wrapped_call_impl(), or _call_impl() of a PyTorch before 2.1.
    NnModuleCall nn_call() const {
        return {nn_code_.load(std::memory_order_acquire),
                nn_identity_.load(std::memory_order_relaxed)};
    }
    /// Its first local is no nn.Module: it is not used any more. False if another function may be
    /// used later.
    bool reject_nn_call();

    /// For read_frames().
    const CodeLocationCache& cache() const { return cache_; }

  private:
    std::uint32_t define(const SourceLocation& location) MEMLAB_REQUIRES(mutex_);

    void note_nn_call(const Interpreter& interpreter, const void* code,
                      const SourceLocation& location) MEMLAB_REQUIRES(mutex_);

    StackDefinitions& definitions_;
    CodeLocationCache cache_;
    std::atomic<const void*> nn_code_ = nullptr;
    std::atomic<std::uint64_t> nn_identity_ = 0;

    threads::Mutex mutex_;  // guards writes to cache_, too
    // By function, file and lines.
    std::unordered_map<std::string, std::uint32_t> ids_ MEMLAB_GUARDED_BY(mutex_);
    bool nn_call_is_wrapped_ MEMLAB_GUARDED_BY(mutex_) = false;
    bool rejected_plain_nn_call_ MEMLAB_GUARDED_BY(mutex_) = false;
    bool rejected_wrapped_nn_call_ MEMLAB_GUARDED_BY(mutex_) = false;
};

}  // namespace memlab::profiler::python
