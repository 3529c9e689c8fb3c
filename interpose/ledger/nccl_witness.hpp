// What NCCL says of the device memory of each communicator: ncclCommMemStats, of NCCL 2.29.7 on.
//
// NCCL's functions are not to be called for a communicator that another thread uses. So it is asked
// in the program's own thread, right behind a call for that communicator that has succeeded, and
// before it is ended: the communicator is alive then, and in nobody else's use. Not one in the
// middle of a group, and not one whose last call has failed or is still in progress (NCCL would
// warn).
//
// A call takes less than a microsecond; the first is behind a communicator's first use, the next
// ones ever more rarely, to every eight seconds, and all within the ledger's time. What NCCL
// answers must add up: else the library is another than the one that is known, and is not asked
// again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "interpose/ledger/measuring_budget.hpp"
#include "interpose/memory/memory.hpp"
#include "threads/mutex.hpp"
#include "trace/ledger_entry.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread. Call without any of memlab's locks. Nothing here
/// throws.
class NcclWitness {
  public:
    NcclWitness(Memory& memory, MeasuringBudget& budget, bool enabled)
        : memory_(memory),
          budget_(budget),
          enabled_(enabled),
          follows_(enabled || memory.settings().yield) {}
    NcclWitness(const NcclWitness&) = delete;
    NcclWitness& operator=(const NcclWitness&) = delete;

    /// A call for this communicator returned `result`. `function`: one of the NCCL that it is of.
    void used(void* communicator, int result, const void* function) noexcept;

    /// The communicator will end with the next call, in this thread. `ask_first`: NCCL may be asked
    /// about it before.
    void ends(void* communicator, bool ask_first) noexcept;

    /// Whether a communicator that was used has ranks in other processes, which would wait for this
    /// one. Only where the process can step aside (MEMLAB_YIELD).
    bool has_peers_elsewhere();

  private:
    /// Of one NCCL library; all of them null: it cannot be queried.
    struct Functions {
        int (*statistic)(void*, int, std::uint64_t*) = nullptr;
        int (*device)(void*, int*) = nullptr;
        int (*rank)(void*, int*) = nullptr;
        int (*ranks)(void*, int*) = nullptr;
    };
    struct Known {
        void* handle;
        std::uint32_t number;
        const void* library;
        Functions functions;
        bool ready = true;  ///< its last call had succeeded
        int ranks = 0;      ///< 0: not known
        std::uint64_t interval_ns = 0;
        std::uint64_t not_before_ns = 0;
        trace::CommunicatorMemory last = {};
    };
    static constexpr std::size_t max_known = 256;

    static Functions functions_of(const void* library);
    std::vector<Known>::iterator find(const void* communicator) MEMLAB_REQUIRES(mutex_);
    /// Whether its NCCL has the function, and no answer of it was refused.
    bool may_ask(const Known& known) const {
        return enabled_ && known.functions.statistic != nullptr &&
               known.library != refused_.load(std::memory_order_relaxed);
    }
    void ask(Known known, bool ended);

    Memory& memory_;
    MeasuringBudget& budget_;
    const bool enabled_;
    const bool follows_;  ///< which communicators there are
    threads::Mutex mutex_;
    std::vector<Known> known_ MEMLAB_GUARDED_BY(mutex_);
    std::uint32_t numbers_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::atomic<const void*> refused_{nullptr};  ///< a library that is not asked again
};

}  // namespace memlab::interpose
