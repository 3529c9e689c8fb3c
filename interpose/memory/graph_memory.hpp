// Tracks memory of CUDA graphs: allocated by a node, alive as long as any graph or executable graph
// derived from it, or until the program frees it outside.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/memory/memory.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class GraphMemory {
  public:
    /// A node of `graph` allocates at `address`.
    void add(CUgraph graph, std::uint64_t address);

    /// `made` (a clone or an executable graph) keeps alive what `from` keeps alive.
    void share(const void* from, const void* made);

    /// A graph is captured again: from now on an allocation in a capture may be one that a graph
    /// already has.
    void recaptures() { recaptures_.store(true, std::memory_order_relaxed); }
    bool may_be_recaptured() const { return recaptures_.load(std::memory_order_relaxed); }

    /// A graph or executable graph was destroyed; memory that no other graph keeps alive is
    /// recorded as freed. `api` is the function that destroyed it.
    void destroyed(Memory& memory, Api api, const void* graph);

  private:
    using Addresses = std::set<std::uint64_t>;

    std::atomic<bool> recaptures_{false};
    threads::Mutex mutex_;
    // What each graph keeps alive, and the number of owners of each address.
    std::unordered_map<const void*, Addresses> owners_ MEMLAB_GUARDED_BY(mutex_);
    std::unordered_map<std::uint64_t, int> references_ MEMLAB_GUARDED_BY(mutex_);
};

/// The process-wide instance; never destroyed.
GraphMemory& graph_memory();

/// The graph that `stream` is being captured into; null when it is not capturing.
CUgraph capturing_graph(Memory& memory, CUstream stream, bool per_thread);

}  // namespace memlab::interpose
