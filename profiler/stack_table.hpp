// Interns call stacks: gives each distinct one an id, and defines it in the recording once.
//
// Every event looks its stack up here, so a known stack is found without a lock and without a
// write: an insert-only open-addressing table of pointers to entries that never change or move.
// A new stack is defined under a lock. When the table grows, the old ones stay alive for readers
// that still search them; together they are at most as large as the current one.
//
// Recursion, generated code and interpreters can make new stacks without end, so their number is
// limited. A stack beyond the limit is folded to its innermost frames, of which there are far
// fewer; those have a limit of their own, beyond which all stacks count as one without frames.
//
// An address alone does not identify code: after a dlclose another library may be mapped there. So
// an entry is valid for one unload epoch (unwind/unloads.hpp). The modules of a stack that is known
// only from an earlier epoch are looked up again. If they are the same, the entry is moved to the
// present epoch and the stack keeps its id; else it is another stack.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "profiler/loaded_modules.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/stack_definitions.hpp"
#include "threads/mutex.hpp"
#include "trace/record.hpp"

namespace memlab::profiler {

/// Thread-safety: any number of threads. Locks: its own, only for a new stack, and under it what
/// `definitions` takes.
class StackTable {
  public:
    static constexpr std::uint32_t default_max_stacks = 200'000;

    /// `definitions` must outlive it. `max_stacks`: stacks kept whole; about a quarter more are
    /// kept for folded ones.
    explicit StackTable(StackDefinitions& definitions,
                        std::uint32_t max_stacks = default_max_stacks);
    ~StackTable();
    StackTable(const StackTable&) = delete;
    StackTable& operator=(const StackTable&) = delete;

    /// A bit per word of a stack: set if it is a Python frame's id. Separate, since any word may be
    /// a return address.
    using PythonWords = std::array<std::uint64_t, unwind::CapturedStack::max_depth / 64>;

    /// The epoch while an object is being unloaded: nothing is cached under it.
    static constexpr std::uint64_t no_epoch = 0;

    /// The id of the calling thread's stack of at most CapturedStack::max_depth words, leaf first:
    /// return addresses, and Python frames where `python` says so. Call while these frames are
    /// active, so that their objects stay loaded. `epoch`: unload_epoch() when or after the
    /// addresses were read. Throws std::bad_alloc.
    std::uint32_t intern(std::span<const std::uint64_t> stack, bool truncated, std::uint64_t epoch,
                         const PythonWords* python = nullptr);

    /// Copies the first Python frames of a stack that intern() returned, leaf first, to `frames`;
    /// returns how many. Takes the table's lock.
    std::size_t python_frames(std::uint32_t id, std::span<std::uint64_t> frames);

    /// An address in the first Python interpreter found on a stack; 0: none so far.
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
    Entry* find_same_modules(const Key& key, const std::vector<std::uint32_t>& modules) const
        MEMLAB_REQUIRES(mutex_);
    void grow() MEMLAB_REQUIRES(mutex_);
    std::uint32_t intern_folded(const Key& key);
    std::uint32_t define(const Key& key, std::size_t limit);
    std::uint32_t define(const Key& key, const Resolved& resolved, std::size_t limit)
        MEMLAB_REQUIRES(mutex_);
    std::uint32_t module_id(const LoadedModule& module) MEMLAB_REQUIRES(mutex_);

    StackDefinitions& definitions_;
    const std::uint32_t max_stacks_;
    std::atomic<Slots*> slots_;
    std::atomic<std::size_t> entry_count_{0};
    std::atomic<bool> folding_{false};

    threads::Mutex mutex_;  // guards all writes, and what follows
    std::vector<std::unique_ptr<Slots>> all_slots_ MEMLAB_GUARDED_BY(mutex_);
    // By id, from 1.
    std::vector<std::unique_ptr<Entry, EntryDelete>> entries_ MEMLAB_GUARDED_BY(mutex_);
    std::vector<trace::ModuleDef> modules_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<std::uintptr_t> interpreter_{0};
};

}  // namespace memlab::profiler
