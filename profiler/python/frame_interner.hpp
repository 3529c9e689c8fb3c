// The number of a Python frame: what its function, file and line are called in the recording.
//
// Text is read when a place is seen for the first time, and kept; nothing of a frame is touched
// after the capture. Places that were seen before are in CodeLocationCache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "profiler/python/code_location_cache.hpp"
#include "profiler/python/frames.hpp"
#include "profiler/stack_definitions.hpp"

namespace memlab::profiler::python {

/// A place in words.
struct Place {
    std::string function;
    std::string file;
    int line = 0;
    int first_line = 0;

    bool operator==(const Place&) const = default;
};

/// What a frame says of itself, and how many bytes of the line table decided. Throws
/// std::bad_alloc.
Place place_of(const Interpreter& interpreter, const RawFrame& frame,
               std::size_t* table_bytes = nullptr);

/// Thread-safety: any number of threads. Locks: its own for a place that is not in the table, and
/// under it whatever `definitions` takes.
class FrameInterner {
  public:
    /// `definitions` must outlive it. Throws std::bad_alloc.
    explicit FrameInterner(StackDefinitions& definitions);

    /// Fills in the numbers of `count` frames of the calling thread where they are 0. Throws
    /// std::bad_alloc.
    void number(const Interpreter& interpreter, bool in_main_interpreter, RawFrame* frames,
                std::size_t count);

    /// What read_frames() may take numbers from.
    const CodeLocationCache& known() const { return known_; }

  private:
    std::uint32_t define(const Place& place);

    StackDefinitions& definitions_;
    CodeLocationCache known_;

    std::mutex mutex_;                                       // what is written
    std::unordered_map<std::string, std::uint32_t> places_;  // by their text
};

}  // namespace memlab::profiler::python
