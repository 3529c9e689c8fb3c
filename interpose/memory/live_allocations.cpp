#include "interpose/memory/live_allocations.hpp"

#include <sched.h>

#include <algorithm>
#include <new>

namespace memlab::interpose {

namespace {

std::uint64_t end_of(std::uint64_t address, const LiveAllocation& allocation) {
    return address + std::max<std::uint64_t>(allocation.requested, 1);
}

}  // namespace

[[gnu::hot]] std::uint32_t LiveAllocations::place_of(HandleClass handles,
                                                     std::uint64_t address) const {
    return index_.find(hash(handles, address),
                       [&](std::uint32_t place) { return is_at(place, handles, address); });
}

std::uint64_t& LiveAllocations::bytes_of(const LiveAllocation& allocation) {
    return bytes_[allocation.device][static_cast<std::size_t>(allocation.kind)];
}

/// `known`: the place of what has its address. May throw std::bad_alloc, and then has changed
/// nothing.
[[gnu::hot]] void LiveAllocations::put(std::uint32_t known, const Entry& entry) {
    if (entry.allocation.device >= bytes_.size()) {
        bytes_.resize(std::size_t{entry.allocation.device} + 1);
    }
    if (known != trace::HashIndex::none) {
        bytes_of(entries_[known].allocation) -= entries_[known].allocation.requested;
        entries_[known] = entry;
    } else {
        index_.make_room();
        entries_.push_back(entry);
        index_.insert(hash(entry.handles, entry.address),
                      static_cast<std::uint32_t>(entries_.size() - 1));
    }
    bytes_of(entry.allocation) += entry.allocation.requested;
}

[[gnu::hot]] void LiveAllocations::erase(std::uint32_t place) {
    const auto last = static_cast<std::uint32_t>(entries_.size() - 1);
    bytes_of(entries_[place].allocation) -= entries_[place].allocation.requested;
    index_.erase(hash(entries_[place].handles, entries_[place].address), place);
    if (place != last) {
        const std::uint64_t of_last = hash(entries_[last].handles, entries_[last].address);
        index_.erase(of_last, last);
        entries_[place] = entries_[last];
        index_.insert(of_last, place);  // room is there: as many were in it
    }
    entries_.pop_back();
}

/// The driver cuts freed memory as it likes: what it hands out need not begin where a freed block
/// did. Handles of other classes are no ranges of bytes.
[[gnu::hot]] bool LiveAllocations::is_leaving(std::uint32_t place, HandleClass handles,
                                              std::uint64_t address,
                                              const LiveAllocation& allocation) const {
    if (place != trace::HashIndex::none && entries_[place].freeing) {
        return true;
    }
    return handles == HandleClass::memory &&
           std::any_of(leaving_.begin(), leaving_.end(), [&](const Leaving& leaving) {
               return address < leaving.end && leaving.begin < end_of(address, allocation);
           });
}

[[gnu::hot]] bool LiveAllocations::add(HandleClass handles, std::uint64_t address,
                                       const LiveAllocation& allocation,
                                       FunctionRef<void()> record) {
    std::unique_lock lock(mutex_);
    std::uint32_t known = place_of(handles, address);
    while (is_leaving(known, handles, address, allocation)) {
        // The thread that freed it is between the driver's answer and its record: a few
        // instructions away.
        lock.unlock();
        sched_yield();
        lock.lock();
        known = place_of(handles, address);
    }
    try {
        put(known, {address, allocation, handles, false});
    } catch (const std::bad_alloc&) {
        return false;
    }
    record();
    return true;
}

[[gnu::hot]] std::optional<LiveAllocation> LiveAllocations::begin_free(HandleClass handles,
                                                                       std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    const std::uint32_t place = place_of(handles, address);
    if (place == trace::HashIndex::none || entries_[place].freeing) {
        return std::nullopt;
    }
    entries_[place].freeing = true;
    last_begun_ = place;
    if (handles == HandleClass::memory) {
        try {
            leaving_.push_back({address, end_of(address, entries_[place].allocation)});
        } catch (const std::bad_alloc&) {  // its first address is still watched
        }
    }
    return entries_[place].allocation;
}

[[gnu::hot]] void LiveAllocations::finish_free(HandleClass handles, std::uint64_t address,
                                               bool freed, FunctionRef<void()> record) {
    const std::lock_guard lock(mutex_);
    const std::uint32_t place =
        last_begun_ < entries_.size() && is_at(last_begun_, handles, address)
            ? last_begun_
            : place_of(handles, address);
    if (place != trace::HashIndex::none) {
        if (freed) {
            record();
            erase(place);
        } else {
            entries_[place].freeing = false;
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
    const std::uint32_t place = place_of(handles, address);
    return place == trace::HashIndex::none ? std::nullopt
                                           : std::optional(entries_[place].allocation);
}

LiveAllocations::BytesByKind LiveAllocations::bytes_by_kind(std::uint32_t device) const {
    const std::lock_guard lock(mutex_);
    return device < bytes_.size() ? bytes_[device] : BytesByKind{};
}

void LiveAllocations::remove_context(std::uint32_t context) {
    const std::lock_guard lock(mutex_);
    for (std::size_t place = entries_.size(); place-- > 0;) {
        if (entries_[place].allocation.context == context) {
            erase(static_cast<std::uint32_t>(place));
        }
    }
}

}  // namespace memlab::interpose
