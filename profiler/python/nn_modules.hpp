// Numbers the stacks of calls of PyTorch's nn.Modules, and defines each in the recording once.
//
// An nn.Module is known by its address, which only tells it from others: of the object nothing is
// read, except for one check of each new one. It has a number, so that an address that is used
// again after its end is another nn.Module. A stack is its innermost call and the stack around it,
// so that a number is all that the record of a tensor needs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/python/merged_stack_cache.hpp"
#include "profiler/stack_definitions.hpp"
#include "threads/mutex.hpp"

namespace memlab::profiler::python {

/// Thread-safety: any number of threads. Locks: its own, but not to find a known stack, and under
/// it what `definitions` takes. May throw std::bad_alloc.
class NnModules {
  public:
    static constexpr std::size_t max_stacks = 100'000;

    /// `definitions` must outlive it.
    explicit NnModules(StackDefinitions& definitions) : definitions_(definitions) {}

    /// The id of a stack that intern() got with this hash; 0: not known, or no longer.
    std::uint32_t find(std::uint64_t hash) const {
        const MergedStackCache* const known = known_.load(std::memory_order_acquire);
        return known == nullptr ? 0 : known->find(key(hash));
    }

    /// The id of a stack of calls, innermost first, of nn.Modules that stay alive meanwhile.
    /// `hash`: of all their addresses. None: what is at one of the addresses is no object of a
    /// class made by Python code.
    std::optional<std::uint32_t> intern(std::span<const std::uintptr_t> calls, std::uint64_t hash);

    // CPython's Py_AddPendingCall, and what it takes.
    using PendingCall = int (*)(void*);
    using AddPendingCall = int (*)(PendingCall, void*);

    /// From here on the process's outermost nn.Modules without a name are kept for take_unnamed(),
    /// and of each one `add(call, nullptr)` tells, in the thread that calls it, with no lock held.
    /// Null: no longer.
    static void tell_of_unnamed(AddPendingCall add, PendingCall call) {
        pending_call_.store(call, std::memory_order_relaxed);
        add_pending_call_.store(add, std::memory_order_release);
    }
    /// Those that were called first since the last time, in the order of their first calls. Fills
    /// in at most addresses.size(), and says how many.
    std::size_t take_unnamed(std::span<std::uintptr_t> addresses);

    /// What the program calls the nn.Module at the address; the latest counts.
    void name(std::uintptr_t address, std::string_view name, std::string_view class_name);
    /// The address may be another's from here on.
    void end(std::uintptr_t address);

  private:
    static constexpr std::size_t max_unnamed = 1024;

    inline static std::atomic<AddPendingCall> add_pending_call_ = nullptr;
    inline static std::atomic<PendingCall> pending_call_ = nullptr;

    StackHash key(std::uint64_t hash) const {
        const std::uint64_t ends = ends_.load(std::memory_order_acquire);
        return {hash, mix(hash ^ mix_factor, mix_factor + 2 * ends)};
    }
    struct NnModule {
        std::uint32_t number = 0;
        bool is_told = false;  ///< it has a name, or take_unnamed() had it or will
    };

    std::optional<std::uint32_t> intern_locked(std::span<const std::uintptr_t> calls,
                                               std::uint64_t hash) MEMLAB_REQUIRES(mutex_);
    bool keep_unnamed(std::uintptr_t outermost) MEMLAB_REQUIRES(mutex_);
    NnModule& at(std::uintptr_t address) MEMLAB_REQUIRES(mutex_);
    std::uint32_t id_of(std::uint32_t parent, std::uint32_t number) MEMLAB_REQUIRES(mutex_);

    StackDefinitions& definitions_;
    std::atomic<MergedStackCache*> known_ = nullptr;
    std::atomic<std::uint64_t> ends_ = 0;  ///< how often an nn.Module that had a number ended

    threads::Mutex mutex_;
    std::unique_ptr<MergedStackCache> cache_ MEMLAB_GUARDED_BY(mutex_);  ///< known_
    std::unordered_map<std::uintptr_t, NnModule> nn_modules_ MEMLAB_GUARDED_BY(mutex_);
    std::vector<std::uintptr_t> unnamed_ MEMLAB_GUARDED_BY(mutex_);
    std::uint32_t latest_number_ MEMLAB_GUARDED_BY(mutex_) = 0;
    /// By the parent's id and the number of the innermost call's nn.Module.
    std::unordered_map<std::uint64_t, std::uint32_t> ids_ MEMLAB_GUARDED_BY(mutex_);
    bool full_ MEMLAB_GUARDED_BY(mutex_) = false;  ///< it was said
};

}  // namespace memlab::profiler::python
