#include "report/whatif/rmm_model.hpp"

namespace memlab::report::whatif {

bool RmmModel::from_upstream(std::uint64_t bytes) {
    const std::uint64_t pages = round_up(bytes, device_page);
    if (!meter_.can_grow(pages)) {
        return false;
    }
    meter_.grow(pages, [this] { return FreeSpace{free_.largest(), free_.total()}; });
    meter_.count_alloc(pages);
    upstream_.emplace(next_address_, bytes);
    free_.add(next_address_, bytes);
    next_address_ += pages + device_page;
    pool_size_ += bytes;
    return true;
}

std::uint64_t RmmModel::size_to_grow(std::uint64_t size) const {
    if (!settings_.maximum) {
        return std::max(size, pool_size_);
    }
    const std::uint64_t remaining =
        round_up(*settings_.maximum - std::min(*settings_.maximum, pool_size_), alignment);
    return size <= remaining ? std::max(size, round_up(remaining / 2, alignment)) : 0;
}

void RmmModel::reclaim(std::uint64_t size) {
    for (auto block = upstream_.begin(); block != upstream_.end();) {
        if (*settings_.maximum - pool_size_ >= size) {
            return;
        }
        const auto free = free_.ranges().find(block->first);
        if (free == free_.ranges().end() || free->second != block->second) {
            ++block;
            continue;
        }
        const std::uint64_t pages = round_up(block->second, device_page);
        free_.remove({block->first, block->second});
        meter_.shrink(pages);
        meter_.count_free(pages);
        pool_size_ -= block->second;
        block = upstream_.erase(block);
    }
}

bool RmmModel::expand(std::uint64_t size) {
    std::uint64_t attempt = size_to_grow(size);
    if (attempt < size && settings_.maximum && size <= *settings_.maximum) {
        reclaim(size);
        attempt = size_to_grow(size);
    }
    while (attempt >= size) {
        if (from_upstream(attempt)) {
            return true;
        }
        if (attempt == size) {
            return false;
        }
        attempt = std::max(size, attempt / 2);
    }
    return false;
}

bool RmmModel::allocate(std::uint32_t id, const Allocation& allocation) {
    if (allocation.requested > max_request) {
        return false;
    }
    if (!initialized_) {
        initialized_ = true;
        if (settings_.initial > 0 && !from_upstream(round_up(settings_.initial, alignment))) {
            return false;
        }
    }
    const std::uint64_t size =
        round_up(std::max<std::uint64_t>(allocation.requested, 1), alignment);
    LiveBlock block{0, size, allocation.requested};
    if (!free_.take_best(size, &block.address)) {
        if (!expand(size) || !free_.take_best(size, &block.address)) {
            return false;
        }
    }
    meter_.allocated(block.requested, size);
    live_.emplace(id, block);
    return true;
}

void RmmModel::free(std::uint32_t id) {
    const auto found = live_.find(id);
    const LiveBlock block = found->second;
    live_.erase(found);
    meter_.freed(block.requested, block.size);
    meter_.completed(block.size);
    free_.add(block.address, block.size);
}

}  // namespace memlab::report::whatif
