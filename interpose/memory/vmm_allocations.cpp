#include "interpose/memory/vmm_allocations.hpp"

#include <algorithm>

namespace memlab::interpose {

namespace {
constexpr std::uint32_t none = trace::HashIndex::none;
}

/// The place of the handle's name, or none.
std::uint32_t VmmAllocations::named(Handle handle) const {
    return index_.find(hash(handle),
                       [&](std::uint32_t place) { return names_[place].handle == handle; });
}

/// May throw std::bad_alloc, and then has changed nothing.
void VmmAllocations::name(Handle handle, std::uint32_t allocation) {
    if (const std::uint32_t known = named(handle); known != none) {
        names_[known].allocation = allocation;
        return;
    }
    index_.make_room();
    names_.push_back({handle, allocation});
    index_.insert(hash(handle), static_cast<std::uint32_t>(names_.size() - 1));
}

void VmmAllocations::forget(std::uint32_t place) {
    const auto last = static_cast<std::uint32_t>(names_.size() - 1);
    index_.erase(hash(names_[place].handle), place);
    if (place != last) {
        index_.erase(hash(names_[last].handle), last);
        names_[place] = names_[last];
        index_.insert(hash(names_[place].handle), place);  // room is there: as many were in it
    }
    names_.pop_back();
}

std::uint64_t VmmAllocations::created(Handle handle) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
        if (free_.capacity() <= allocations_.size()) {  // so that a place can be given back
            free_.reserve(2 * allocations_.size() + 1);
        }
        allocations_.push_back({});
        free_.push_back(static_cast<std::uint32_t>(allocations_.size() - 1));
    }
    const std::uint32_t place = free_.back();
    name(handle, place);
    free_.pop_back();
    allocations_[place] = {.number = next_number_, .handles = 1, .mappings = 0};
    return next_number_++;
}

void VmmAllocations::retained(Handle handle) {
    const std::lock_guard lock(mutex_);
    if (const std::uint32_t place = named(handle); place != none) {
        ++allocations_[names_[place].allocation].handles;
    }
}

void VmmAllocations::mapped(CUdeviceptr address, std::size_t bytes, Handle handle) {
    const std::lock_guard lock(mutex_);
    if (const std::uint32_t place = named(handle); place != none) {
        const std::uint32_t allocation = names_[place].allocation;
        const auto at = mappings_.lower_bound(address);
        if (at != mappings_.end() && mappings_.key_at(at) == address) {
            mappings_.at(at) = {bytes, allocation};
        } else {
            mappings_.insert(at, address, {bytes, allocation});
        }
        ++allocations_[allocation].mappings;
    }
}

std::vector<std::uint64_t> VmmAllocations::unmapped(CUdeviceptr address, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    std::vector<std::uint64_t> dead;
    if (const std::uint32_t place = named(handle); place != none) {
        const std::uint32_t allocation = names_[place].allocation;
        if (--allocations_[allocation].handles == 0) {
            forget(place);
        }
        erase_if_dead(allocation, dead);
    }
    return dead;
}

void VmmAllocations::erase_if_dead(std::uint32_t allocation, std::vector<std::uint64_t>& dead) {
    const Allocation& gone = allocations_[allocation];
    if (gone.handles <= 0 && gone.mappings <= 0) {
        dead.push_back(gone.number);
        free_.push_back(allocation);
    }
}

VmmAllocations& vmm_allocations() {
    static auto* const instance = new VmmAllocations;
    return *instance;
}

}  // namespace memlab::interpose
