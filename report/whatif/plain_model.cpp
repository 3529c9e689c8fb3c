#include "report/whatif/plain_model.hpp"

namespace memlab::whatif {

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
    Held held;
    held.requested = allocation.requested;
    held.size = round_up(std::max<std::uint64_t>(allocation.requested, 1), granularity);
    if (held.size <= max_small) {
        if (!take_small(held.size, &held.address)) {
            return false;
        }
    } else {
        held.size = round_up(held.size, device_page);
        if (!meter_.can_grow(held.size)) {
            return false;
        }
        grow(held.size);
    }
    meter_.count_alloc(held.size);
    meter_.allocated(held.requested, held.size);
    held_.emplace(id, held);
    return true;
}

void PlainModel::free(std::uint32_t id) {
    const auto found = held_.find(id);
    const Held held = found->second;
    held_.erase(found);
    meter_.count_free(held.size);
    meter_.freed(held.requested, held.size);
    meter_.completed(held.size);
    if (held.address == 0) {
        meter_.shrink(held.size);
        return;
    }
    const FreeRanges::Range merged = small_.add(held.address, held.size);
    if (merged.size == device_page) {
        small_.remove(merged);
        meter_.shrink(device_page);
    }
}

}  // namespace memlab::whatif
