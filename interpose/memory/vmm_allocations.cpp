#include "interpose/memory/vmm_allocations.hpp"

#include <algorithm>

namespace memlab::interpose {

namespace {
constexpr std::uint32_t none = trace::HashIndex::none;
}

/// The slot of the handle in live_handles_, or none.
std::uint32_t VmmAllocations::find_slot(Handle handle) const {
    return index_.find(hash(handle), [&](std::uint32_t slot) {
        mutex_.assert_held();
        return live_handles_[slot].handle == handle;
    });
}

/// Strong exception guarantee (std::bad_alloc).
void VmmAllocations::bind(Handle handle, std::uint32_t allocation) {
    if (const std::uint32_t known = find_slot(handle); known != none) {
        live_handles_[known].allocation = allocation;
        return;
    }
    index_.reserve_slot();
    live_handles_.push_back({handle, allocation});
    index_.insert(hash(handle), static_cast<std::uint32_t>(live_handles_.size() - 1));
}

void VmmAllocations::unbind(std::uint32_t slot) {
    const auto last = static_cast<std::uint32_t>(live_handles_.size() - 1);
    index_.erase(hash(live_handles_[slot].handle), slot);
    if (slot != last) {
        index_.erase(hash(live_handles_[last].handle), last);
        live_handles_[slot] = live_handles_[last];
        index_.insert(hash(live_handles_[slot].handle),
                      slot);  // cannot allocate: the entry count did not grow
    }
    live_handles_.pop_back();
}

std::uint64_t VmmAllocations::created(Handle handle) {
    const threads::LockGuard lock(mutex_);
    if (free_.empty()) {
        if (free_.capacity() <= allocations_.size()) {  // so that freeing a slot cannot throw
            free_.reserve(2 * allocations_.size() + 1);
        }
        allocations_.push_back({});
        free_.push_back(static_cast<std::uint32_t>(allocations_.size() - 1));
    }
    const std::uint32_t slot = free_.back();
    bind(handle, slot);
    free_.pop_back();
    allocations_[slot] = {.number = next_number_, .handles = 1, .mappings = 0};
    return next_number_++;
}

void VmmAllocations::retained(Handle handle) {
    const threads::LockGuard lock(mutex_);
    if (const std::uint32_t slot = find_slot(handle); slot != none) {
        ++allocations_[live_handles_[slot].allocation].handles;
    }
}

void VmmAllocations::mapped(CUdeviceptr address, std::size_t bytes, Handle handle) {
    const threads::LockGuard lock(mutex_);
    if (const std::uint32_t slot = find_slot(handle); slot != none) {
        const std::uint32_t allocation = live_handles_[slot].allocation;
        const auto at = mappings_.lower_bound(address);
        if (at != mappings_.end() && mappings_.key_at(at) == address) {
            mappings_.at(at) = {bytes, allocation};
        } else {
            mappings_.insert(at, address, {bytes, allocation});
        }
        ++allocations_[allocation].mappings;
    }
}

VmmAllocations::Range VmmAllocations::mapping_at(CUdeviceptr address) {
    const threads::LockGuard lock(mutex_);
    const auto at = mappings_.floor(address);
    if (at == mappings_.end() || address - mappings_.key_at(at) >= mappings_.at(at).bytes) {
        return {};
    }
    const Mapping& mapping = mappings_.at(at);
    return {mappings_.key_at(at), mapping.bytes, allocations_[mapping.allocation].number};
}

std::vector<std::uint64_t> VmmAllocations::unmapped(CUdeviceptr address, std::size_t bytes) {
    const threads::LockGuard lock(mutex_);
    std::vector<std::uint64_t> dead;
    const CUdeviceptr end = address + bytes;
    for (CUdeviceptr begin = address; begin < end;) {
        const auto at = mappings_.lower_bound(begin);
        if (at == mappings_.end() || mappings_.key_at(at) >= end) {
            break;
        }
        const Mapping mapping = mappings_.at(at);
        begin = mappings_.key_at(at) + std::max<std::size_t>(mapping.bytes, 1);
        mappings_.erase(at);
        --allocations_[mapping.allocation].mappings;
        erase_if_dead(mapping.allocation, dead);
    }
    return dead;
}

std::vector<std::uint64_t> VmmAllocations::released(Handle handle) {
    const threads::LockGuard lock(mutex_);
    std::vector<std::uint64_t> dead;
    if (const std::uint32_t slot = find_slot(handle); slot != none) {
        const std::uint32_t allocation = live_handles_[slot].allocation;
        if (--allocations_[allocation].handles == 0) {
            unbind(slot);
        }
        erase_if_dead(allocation, dead);
    }
    return dead;
}

void VmmAllocations::erase_if_dead(std::uint32_t allocation, std::vector<std::uint64_t>& dead) {
    const Allocation& entry = allocations_[allocation];
    if (entry.handles <= 0 && entry.mappings <= 0) {
        dead.push_back(entry.number);
        free_.push_back(allocation);
    }
}

VmmAllocations& vmm_allocations() {
    static auto* const instance = new VmmAllocations;
    return *instance;
}

}  // namespace memlab::interpose
