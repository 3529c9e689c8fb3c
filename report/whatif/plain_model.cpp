#include "report/whatif/plain_model.hpp"

namespace memlab::report::whatif {

void PlainModel::grow(std::uint64_t bytes) {
    meter_.grow(bytes, [this] { return FreeSpace{small_.largest(), small_.total()}; });
}

bool PlainModel::take_small(std::uint64_t size, std::uint64_t* address) {
    if (small_.take_best(size, address)) {
        return true;
    }
    if (!meter_.can_grow(device_page)) {
        return false;
    }
    grow(device_page);
    small_.add(next_chunk_, device_page);
    next_chunk_ += 2 * device_page;
    return small_.take_best(size, address);
}

bool PlainModel::allocate(std::uint32_t id, const Allocation& allocation) {
    if (allocation.requested > max_request) {
        return false;
    }
    LiveBlock block;
    block.requested = allocation.requested;
    block.size = round_up(std::max<std::uint64_t>(allocation.requested, 1), granularity);
    if (block.size <= max_small) {
        if (!take_small(block.size, &block.address)) {
            return false;
        }
    } else {
        block.size = round_up(block.size, device_page);
        if (!meter_.can_grow(block.size)) {
            return false;
        }
        grow(block.size);
    }
    meter_.count_alloc(block.size);
    meter_.allocated(block.requested, block.size);
    live_.emplace(id, block);
    return true;
}

void PlainModel::free(std::uint32_t id) {
    const auto found = live_.find(id);
    const LiveBlock block = found->second;
    live_.erase(found);
    meter_.count_free(block.size);
    meter_.freed(block.requested, block.size);
    meter_.completed(block.size);
    if (block.address == 0) {
        meter_.shrink(block.size);
        return;
    }
    const FreeRanges::Range merged = small_.add(block.address, block.size);
    if (merged.size == device_page) {
        small_.remove(merged);
        meter_.shrink(device_page);
    }
}

}  // namespace memlab::report::whatif
