#include "interpose/live_allocations.hpp"

#include <sched.h>

#include <new>

namespace memlab::interpose {

bool LiveAllocations::add(HandleClass handles, std::uint64_t address,
                          const LiveAllocation& allocation, FunctionRef<void()> record) {
    const Key key{handles, address};
    std::unique_lock lock(mutex_);
    for (;;) {
        const auto it = entries_.find(key);
        if (it == entries_.end() || !it->second.freeing) {
            break;
        }
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
    return it->second.allocation;
}

void LiveAllocations::finish_free(HandleClass handles, std::uint64_t address, bool freed,
                                  FunctionRef<void()> record) {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find({handles, address});
    if (it == entries_.end()) {
        return;
    }
    if (freed) {
        record();
        entries_.erase(it);
    } else {
        it->second.freeing = false;
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
