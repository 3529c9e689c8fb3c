#include "interpose/vmm_allocations.hpp"

namespace memlab::interpose {

std::uint64_t VmmAllocations::created(Handle handle) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = next_number_++;
    numbers_[handle] = number;
    allocations_[number] = {};
    return number;
}

void VmmAllocations::retained(Handle handle) {
    const std::lock_guard lock(mutex_);
    if (const auto it = numbers_.find(handle); it != numbers_.end()) {
        ++allocations_[it->second].handles;
    }
}

void VmmAllocations::mapped(CUdeviceptr address, std::size_t bytes, Handle handle) {
    const std::lock_guard lock(mutex_);
    if (const auto it = numbers_.find(handle); it != numbers_.end()) {
        ++allocations_[it->second].mappings;
        mappings_[address] = {bytes, it->second};
    }
}

std::vector<std::uint64_t> VmmAllocations::unmapped(CUdeviceptr address, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint64_t> dead;
    for (auto it = mappings_.lower_bound(address);
         it != mappings_.end() && it->first < address + bytes;) {
        const std::uint64_t number = it->second.number;
        it = mappings_.erase(it);
        --allocations_[number].mappings;
        erase_if_dead(number, dead);
    }
    return dead;
}

std::vector<std::uint64_t> VmmAllocations::released(Handle handle) {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint64_t> dead;
    if (const auto it = numbers_.find(handle); it != numbers_.end()) {
        const std::uint64_t number = it->second;
        if (--allocations_[number].handles == 0) {
            numbers_.erase(it);
        }
        erase_if_dead(number, dead);
    }
    return dead;
}

void VmmAllocations::erase_if_dead(std::uint64_t number, std::vector<std::uint64_t>& dead) {
    const auto it = allocations_.find(number);
    if (it != allocations_.end() && it->second.handles <= 0 && it->second.mappings <= 0) {
        allocations_.erase(it);
        dead.push_back(number);
    }
}

VmmAllocations& vmm_allocations() {
    static auto* const instance = new VmmAllocations;
    return *instance;
}

}  // namespace memlab::interpose
