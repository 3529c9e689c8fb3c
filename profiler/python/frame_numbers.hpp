// The number of a Python frame: what its function, file and line are called in the recording.
//
// Text is read when a place is seen for the first time, and kept; nothing of a frame is touched
// after the capture. Known places are found by the address of the code object and the instruction,
// in a table of fixed size that is read without a lock.
//
// Addresses are used again: a code object may be gone and another one lie there. So an entry also
// keeps an identity, and holds only for a code object that has the same one:
//  - where code objects are numbered (3.12 on), their number, with where their texts lie. The
//    interpreter gives a number out once;
//  - else (3.11; numbers that have run out; other interpreters than the main one, which count for
//    themselves) a hash of what the answer is made of: the characters of both names, the first line
//    and the line table up to the instruction. If it is equal, so is the answer: a stale entry is
//    either told apart or says the right thing, but for a collision of 64 bits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

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
class FrameNumbers {
  public:
    /// `definitions` must outlive it. Throws std::bad_alloc.
    explicit FrameNumbers(StackDefinitions& definitions);

    /// The numbers of `count` frames of the calling thread. Throws std::bad_alloc.
    void of(const Interpreter& interpreter, bool in_main_interpreter, const RawFrame* frames,
            std::size_t count, std::uint32_t* numbers);

  private:
    /// One place. Written by one thread at a time: `version` is odd meanwhile.
    struct Entry {
        std::atomic<std::uint32_t> version;
        std::atomic<std::uint32_t> number;
        std::atomic<std::uint64_t> code;
        std::atomic<std::uint64_t> offset_and_table_bytes;
        std::atomic<std::uint64_t> identity;
    };
    struct Known;
    static constexpr std::size_t set_size = 2;
    static constexpr std::size_t set_count = 4096;
    struct alignas(64) Set {  // a cache line
        std::array<Entry, set_size> entries;
    };

    static bool read(const Entry& entry, Known* known);
    static void write(Entry& entry, const Known& known);
    std::uint32_t define(const Place& place);

    StackDefinitions& definitions_;
    std::unique_ptr<Set[]> sets_;
    std::atomic<std::uint32_t> next_victim_{0};

    std::mutex mutex_;
    std::unordered_map<std::string, std::uint32_t> places_;  // by their text
};

}  // namespace memlab::profiler::python
