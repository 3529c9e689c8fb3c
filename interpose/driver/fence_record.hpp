// The parts of a fence, and the lock that keeps peers alive. Private to CudaFences: only its
// sources include this.
#pragma once

#include <limits>
#include <vector>

#include "interpose/driver/cuda_fences.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

/// CudaFences::idle_at_ where the device is not known to have been idle.
inline constexpr std::uint64_t never_idle = std::numeric_limits<std::uint64_t>::max();

struct CudaFences::Record {
    CUevent own = nullptr;             ///< in the context itself
    std::vector<RecordedEvent> peers;  ///< in the peers; accessed with PeersInUse held
    allocator::StreamId stream = 0;    ///< covers this stream only; 0: the whole context
    bool foreign = false;              ///< the stream is another context's; the event is in `peers`
    bool host_wait = false;            ///< no events: the host has to wait
    bool blocking = false;             ///< the host sleeps while it waits for these events
    std::uint64_t peers_generation = 0;  ///< generation of the peer list that `peers` matches
    Time time;                           ///< work clock, read before recording
    std::uint32_t references = 0;
    bool spare = false;
    Record* next_spare = nullptr;
};

/// Shared lock that keeps peers alive during driver calls. Costs nothing until there is a peer.
class CudaFences::PeersInUse {
  public:
    explicit PeersInUse(CudaFences& fences) {
        if (fences.had_peers_.load(std::memory_order_acquire)) {
            lock_ = std::shared_lock(fences.peers_in_use_);
        }
    }
    bool held() const { return lock_.owns_lock(); }

  private:
    std::shared_lock<threads::SharedMutex> lock_;
};

}  // namespace memlab::interpose
