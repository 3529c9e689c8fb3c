#include "interpose/live_allocations.hpp"

#include <sched.h>

#include <algorithm>
#include <new>

namespace memlab::interpose {

namespace {

std::uint64_t end_of(std::uint64_t address, const LiveAllocation& allocation) {
    return address + std::max<std::uint64_t>(allocation.requested, 1);
}

}  // namespace

/// The driver cuts freed memory as it likes: what it hands out need not begin where a freed block
/// did. Handles of other classes are no ranges of bytes.
bool LiveAllocations::is_leaving(const Key& key, const LiveAllocation& allocation) const {
    const auto it = entries_.find(key);
    if (it != entries_.end() && it->second.freeing) {
        return true;
    }
    return key.handles == HandleClass::memory &&
           std::any_of(leaving_.begin(), leaving_.end(), [&](const Leaving& leaving) {
               return key.address < leaving.end && leaving.begin < end_of(key.address, allocation);
           });
}

bool LiveAllocations::add(HandleClass handles, std::uint64_t address,
                          const LiveAllocation& allocation, FunctionRef<void()> record) {
    const Key key{handles, address};
    std::unique_lock lock(mutex_);
    while (is_leaving(key, allocation)) {
        // The thread that freed it is between the driver's answer and its record: a few
        // instructions away.
        lock.unlock();
        sched_yield();
        lock.lock();
    }
    try {
        entries_[key] = {allocation, false};
    } catch (const std::bad_alloc&) {
        return false;
    }
    record();
    return true;
}

std::optional<LiveAllocation> LiveAllocations::begin_free(HandleClass handles,
                                                          std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find({handles, address});
    if (it == entries_.end() || it->second.freeing) {
        return std::nullopt;
    }
    it->second.freeing = true;
    if (handles == HandleClass::memory) {
        try {
            leaving_.push_back({address, end_of(address, it->second.allocation)});
        } catch (const std::bad_alloc&) {  // its first address is still watched
        }
    }
    return it->second.allocation;
}

void LiveAllocations::finish_free(HandleClass handles, std::uint64_t address, bool freed,
                                  FunctionRef<void()> record) {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find({handles, address});
    if (it != entries_.end()) {
        if (freed) {
            record();
            entries_.erase(it);
        } else {
            it->second.freeing = false;
        }
    }
    if (handles == HandleClass::memory) {
        const auto leaving =
            std::find_if(leaving_.begin(), leaving_.end(),
                         [address](const Leaving& each) { return each.begin == address; });
        if (leaving != leaving_.end()) {
            leaving_.erase(leaving);
        }
    }
}

std::optional<LiveAllocation> LiveAllocations::find(HandleClass handles,
                                                    std::uint64_t address) const {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find({handles, address});
    return it == entries_.end() ? std::nullopt : std::optional(it->second.allocation);
}

std::array<std::uint64_t, static_cast<std::size_t>(trace::memory_kind_count)>
LiveAllocations::bytes_by_kind(std::uint32_t device) const {
    std::array<std::uint64_t, static_cast<std::size_t>(trace::memory_kind_count)> bytes{};
    const std::lock_guard lock(mutex_);
    for (const auto& [key, entry] : entries_) {
        if (entry.allocation.device == device) {
            bytes[static_cast<std::size_t>(entry.allocation.kind)] += entry.allocation.requested;
        }
    }
    return bytes;
}

void LiveAllocations::remove_context(std::uint32_t context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [context](const auto& entry) {
        return entry.second.allocation.context == context;
    });
}

}  // namespace memlab::interpose
