#include "interpose/memory/live_allocations.hpp"

#include <algorithm>
#include <new>

#include "profiler/unwind/back_off.hpp"

namespace memlab::interpose {

namespace {

std::uint64_t end_address(std::uint64_t address, const LiveAllocation& allocation) {
    return address + std::max<std::uint64_t>(allocation.requested, 1);
}

}  // namespace

[[gnu::hot]] std::uint32_t LiveAllocations::find_slot(HandleClass handles,
                                                      std::uint64_t address) const {
    return index_.find(hash(handles, address), [&](std::uint32_t slot) {
        mutex_.assert_held();
        return matches(slot, handles, address);
    });
}

std::uint64_t& LiveAllocations::live_bytes(const LiveAllocation& allocation) {
    return bytes_[allocation.device][static_cast<std::size_t>(allocation.kind)];
}

/// Inserts, or replaces the entry at slot `known`. Strong exception guarantee (std::bad_alloc).
[[gnu::hot]] void LiveAllocations::put(std::uint32_t known, const Entry& entry) {
    if (entry.allocation.device >= bytes_.size()) {
        bytes_.resize(std::size_t{entry.allocation.device} + 1);
    }
    if (known != trace::HashIndex::none) {
        live_bytes(entries_[known].allocation) -= entries_[known].allocation.requested;
        entries_[known] = entry;
    } else {
        index_.reserve_slot();
        entries_.push_back(entry);
        index_.insert(hash(entry.handles, entry.address),
                      static_cast<std::uint32_t>(entries_.size() - 1));
    }
    live_bytes(entry.allocation) += entry.allocation.requested;
    if (entry.allocation.kind == trace::MemoryKind::managed) {
        had_managed_.store(true, std::memory_order_relaxed);
    }
}

[[gnu::hot]] void LiveAllocations::erase(std::uint32_t slot) {
    const auto last = static_cast<std::uint32_t>(entries_.size() - 1);
    live_bytes(entries_[slot].allocation) -= entries_[slot].allocation.requested;
    index_.erase(hash(entries_[slot].handles, entries_[slot].address), slot);
    if (slot != last) {
        const std::uint64_t last_hash = hash(entries_[last].handles, entries_[last].address);
        index_.erase(last_hash, last);
        entries_[slot] = entries_[last];
        index_.insert(last_hash, slot);  // cannot allocate: the entry count did not grow
    }
    entries_.pop_back();
}

/// The driver may split freed memory: an allocation need not begin where a freed block did. Handles
/// of other classes are not byte ranges.
[[gnu::hot]] bool LiveAllocations::is_being_freed(std::uint32_t slot, HandleClass handles,
                                                  std::uint64_t address,
                                                  const LiveAllocation& allocation) const {
    if (slot != trace::HashIndex::none && entries_[slot].freeing) {
        return true;
    }
    return handles == HandleClass::memory &&
           std::any_of(
               pending_frees_.begin(), pending_frees_.end(), [&](const PendingFree& pending) {
                   return address < pending.end && pending.begin < end_address(address, allocation);
               });
}

[[gnu::hot]] bool LiveAllocations::add(HandleClass handles, std::uint64_t address,
                                       const LiveAllocation& allocation,
                                       FunctionRef<void()> record) {
    threads::UniqueLock lock(mutex_);
    std::uint32_t known = find_slot(handles, address);
    profiler::unwind::BackOff back_off;
    while (is_being_freed(known, handles, address, allocation)) {
        // The freeing thread is between the driver's return and its record: a few instructions.
        lock.unlock();
        back_off.wait();
        lock.lock();
        known = find_slot(handles, address);
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
    const threads::LockGuard lock(mutex_);
    const std::uint32_t slot = find_slot(handles, address);
    if (slot == trace::HashIndex::none || entries_[slot].freeing) {
        return std::nullopt;
    }
    entries_[slot].freeing = true;
    last_begun_slot_ = slot;
    if (handles == HandleClass::memory) {
        try {
            pending_frees_.push_back({address, end_address(address, entries_[slot].allocation)});
        } catch (const std::bad_alloc&) {  // its first address is still checked
        }
    }
    return entries_[slot].allocation;
}

[[gnu::hot]] void LiveAllocations::finish_free(HandleClass handles, std::uint64_t address,
                                               bool freed, FunctionRef<void()> record) {
    const threads::LockGuard lock(mutex_);
    const std::uint32_t slot =
        last_begun_slot_ < entries_.size() && matches(last_begun_slot_, handles, address)
            ? last_begun_slot_
            : find_slot(handles, address);
    if (slot != trace::HashIndex::none) {
        if (freed) {
            record();
            erase(slot);
        } else {
            entries_[slot].freeing = false;
        }
    }
    if (handles == HandleClass::memory) {
        const auto pending =
            std::find_if(pending_frees_.begin(), pending_frees_.end(),
                         [address](const PendingFree& each) { return each.begin == address; });
        if (pending != pending_frees_.end()) {
            pending_frees_.erase(pending);
        }
    }
}

std::optional<LiveAllocation> LiveAllocations::find(HandleClass handles,
                                                    std::uint64_t address) const {
    const threads::LockGuard lock(mutex_);
    const std::uint32_t slot = find_slot(handles, address);
    return slot == trace::HashIndex::none ? std::nullopt : std::optional(entries_[slot].allocation);
}

std::optional<LiveAllocation> LiveAllocations::find_around(std::uint64_t address,
                                                           std::uint64_t* begin) const {
    const threads::LockGuard lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), [address](const Entry& each) {
        return each.handles == HandleClass::memory && each.address <= address &&
               address < end_address(each.address, each.allocation);
    });
    if (found == entries_.end()) {
        return std::nullopt;
    }
    *begin = found->address;
    return found->allocation;
}

LiveAllocations::BytesByKind LiveAllocations::bytes_by_kind(std::uint32_t device) const {
    const threads::LockGuard lock(mutex_);
    return device < bytes_.size() ? bytes_[device] : BytesByKind{};
}

void LiveAllocations::for_each(
    FunctionRef<void(HandleClass, std::uint64_t, const LiveAllocation&)> visit) const {
    const threads::LockGuard lock(mutex_);
    for (const Entry& each : entries_) {
        if (!each.freeing) {
            visit(each.handles, each.address, each.allocation);
        }
    }
}

bool LiveAllocations::is_being_freed(std::uint64_t address, std::uint64_t bytes) const {
    const std::uint64_t end = address + std::max<std::uint64_t>(bytes, 1);
    const threads::LockGuard lock(mutex_);
    return std::any_of(pending_frees_.begin(), pending_frees_.end(), [&](const PendingFree& each) {
        return address < each.end && each.begin < end;
    });
}

bool LiveAllocations::is_leaving(std::uint64_t address, std::uint64_t bytes,
                                 FunctionRef<bool(std::uint32_t)> ends) const {
    const std::uint64_t end = address + std::max<std::uint64_t>(bytes, 1);
    const threads::LockGuard lock(mutex_);
    return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& each) {
        return each.address < end && address < end_address(each.address, each.allocation) &&
               each.handles == HandleClass::memory && ends(each.allocation.context);
    });
}

void LiveAllocations::remove_context(std::uint32_t context) {
    const threads::LockGuard lock(mutex_);
    for (std::size_t slot = entries_.size(); slot-- > 0;) {
        if (entries_[slot].allocation.context == context) {
            erase(static_cast<std::uint32_t>(slot));
        }
    }
}

}  // namespace memlab::interpose
