// Which context's pool owns a device address: asked for every pointer that the program hands in.
#pragma once

#include <cstdint>
#include <map>
#include <shared_mutex>

namespace memlab::interpose {

class Context;

/// Thread-safety: all functions, from any thread. Lock order: pool -> index.
class SegmentIndex {
  public:
    /// Stale entries in the way (of a context that went unseen) are replaced. False when the host
    /// is out of memory.
    bool add(std::uint64_t address, std::uint64_t bytes, Context* owner);
    void remove(std::uint64_t address, const Context* owner);
    void remove_all(const Context* owner);

    /// The owner of the segment that holds `address`, or null.
    Context* find(std::uint64_t address) const;

  private:
    struct Segment {
        std::uint64_t end;
        Context* owner;
    };
    mutable std::shared_mutex mutex_;
    std::map<std::uint64_t, Segment> segments_;
};

}  // namespace memlab::interpose
