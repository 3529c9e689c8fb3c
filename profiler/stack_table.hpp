// Gives every distinct call stack a number, and its definition to the recording, once.
//
// Every event looks its stack up here, so a known stack is found without a lock and without a
// write: an insert-only open-addressing table of pointers to entries that never change or move.
// A stack that is not found is defined under a lock. When the table has grown, the smaller one
// stays behind for readers that still search it; together they are at most as large again.
//
// Recursion, code made at run time and interpreters make new stacks without end, so their number
// has a limit. A stack beyond it is folded: it counts as its innermost frames, of which there are
// far fewer; those have a limit of their own, and what is beyond that is one stack without frames.
//
// An address alone does not name code: after a dlclose another library may stand there. So an entry
// holds for one unload epoch (a number that changes whenever something was unloaded), and a stack
// that is found only under an earlier one has its modules looked up again. If they are the same,
// the entry is good for the present epoch and the stack keeps its number; else it is another stack.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "profiler/loaded_modules.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/stack_definitions.hpp"
#include "trace/record.hpp"

namespace memlab::profiler {

/// Thread-safety: any number of threads. Locks: its own, only for a stack that is new, and under it
/// whatever `definitions` takes.
class StackTable {
  public:
    static constexpr std::uint32_t default_most_stacks = 200'000;

    /// `definitions` must outlive it. `max_stacks`: how many stacks are kept whole; a quarter
    /// more, and a few, of what others are folded to.
    explicit StackTable(StackDefinitions& definitions,
                        std::uint32_t max_stacks = default_most_stacks);
    ~StackTable();
    StackTable(const StackTable&) = delete;
    StackTable& operator=(const StackTable&) = delete;

    /// Which words of a stack are numbers of Python frames: a bit for each. Any word may be a
    /// return address, so nothing in it can say that it is none.
    using PythonWords = std::array<std::uint64_t, CapturedStack::max_depth / 64>;

    /// An epoch that nothing is kept under: while something is being unloaded.
    static constexpr std::uint64_t no_epoch = 0;

    /// The number of the calling thread's stack, of at most CapturedStack::max_depth words: return
    /// addresses, and what `python` says is a Python frame; leaf first. Call it while those frames
    /// stand, so that what they are in stays loaded. `epoch`: how often something had been unloaded
    /// when the addresses were read, or later. Throws std::bad_alloc.
    std::uint32_t id_of(std::span<const std::uint64_t> stack, bool truncated, std::uint64_t epoch,
                        const PythonWords* python = nullptr);

    /// An address in the first Python interpreter that a stack led through; 0: none so far.
    std::uintptr_t interpreter() const { return interpreter_.load(std::memory_order_acquire); }

  private:
    struct Entry;
    struct EntryDelete {
        void operator()(Entry* entry) const;
    };
    struct Slots;
    struct Key;
    struct Resolved;

    static Resolved resolve(const Key& key);
    const Entry* find(const Key& key) const;
    Entry* same_stack(const Key& key, const std::vector<std::uint32_t>& modules) const;
    void grow();
    std::uint32_t folded_id_of(const Key& key);
    std::uint32_t define(const Key& key, std::size_t room);
    std::uint32_t define(const Key& key, const Resolved& resolved, std::size_t room);
    std::uint32_t module_id(const LoadedModule& module);

    StackDefinitions& definitions_;
    const std::uint32_t max_stacks_;
    std::atomic<Slots*> slots_;
    std::atomic<std::size_t> entry_count_{0};
    std::atomic<bool> folding_{false};

    std::mutex mutex_;  // what follows, and all writing
    std::vector<std::unique_ptr<Slots>> all_slots_;
    std::vector<std::unique_ptr<Entry, EntryDelete>> entries_;  // by number, from 1
    std::vector<trace::ModuleDef> modules_;
    std::atomic<std::uintptr_t> interpreter_{0};
};

}  // namespace memlab::profiler
