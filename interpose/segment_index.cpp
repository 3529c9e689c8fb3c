#include "interpose/segment_index.hpp"

#include <mutex>
#include <new>

namespace memlab::interpose {

bool SegmentIndex::add(std::uint64_t address, std::uint64_t bytes, Context* owner) {
    const std::unique_lock lock(mutex_);
    auto it = segments_.lower_bound(address);
    if (it != segments_.begin()) {
        auto before = std::prev(it);
        if (before->second.end > address) {
            it = before;
        }
    }
    while (it != segments_.end() && it->first < address + bytes) {
        it = segments_.erase(it);
    }
    try {
        segments_[address] = {address + bytes, owner};
    } catch (const std::bad_alloc&) {
        return false;
    }
    return true;
}

void SegmentIndex::remove(std::uint64_t address, const Context* owner) {
    const std::unique_lock lock(mutex_);
    const auto it = segments_.find(address);
    if (it != segments_.end() && it->second.owner == owner) {
        segments_.erase(it);
    }
}

void SegmentIndex::remove_all(const Context* owner) {
    const std::unique_lock lock(mutex_);
    std::erase_if(segments_, [owner](const auto& entry) { return entry.second.owner == owner; });
}

Context* SegmentIndex::find(std::uint64_t address) const {
    const std::shared_lock lock(mutex_);
    auto it = segments_.upper_bound(address);
    if (it == segments_.begin()) {
        return nullptr;
    }
    --it;
    return address < it->second.end ? it->second.owner : nullptr;
}

}  // namespace memlab::interpose
