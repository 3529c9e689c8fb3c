// A backend of which every call succeeds at once and needs no memory: for the pool alone, its time
// and its memory.
#pragma once

#include <cstdint>

#include "allocator/backend.hpp"

namespace memlab::allocator::testing {

/// A device with no end of memory, idle unless it is said to be busy.
class NullBackend : public DeviceBackend {
  public:
    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override {
        *address = next_;
        next_ += bytes;
        return {};
    }
    BackendStatus segment_free(Address, std::uint64_t) override { return {}; }
    BackendStatus range_reserve(Address* base, std::uint64_t bytes) override {
        return segment_alloc(bytes, base);
    }
    BackendStatus pages_map(Address, std::uint64_t, std::uint64_t) override { return {}; }
    BackendStatus pages_unmap(Address, std::uint64_t) override { return {}; }
    BackendStatus fence_record(Fence* fence) override {
        *fence = busy ? 1 : 0;
        return {};
    }
    FenceState fence_query(Fence) override {
        return busy ? FenceState::pending : FenceState::complete;
    }
    BackendStatus fence_wait_device(Fence) override { return {}; }
    BackendStatus fence_wait_host(Fence) override { return {}; }
    void fence_release(Fence) override {}

    static constexpr Address first_address = 1ULL << 40;
    bool busy = false;  ///< no fence completes

  private:
    Address next_ = first_address;
};

}  // namespace memlab::allocator::testing
