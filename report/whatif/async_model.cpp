#include "report/whatif/async_model.hpp"

#include <vector>

namespace memlab::report::whatif {

AsyncModel::AsyncModel(std::uint64_t capacity, std::uint64_t release_threshold)
    : Model(capacity), threshold_(release_threshold) {
    arena(false).end = chunk;
    arena(true).end = std::uint64_t{1} << 62;
}

bool AsyncModel::expand(Arena& arena, std::uint64_t size) {
    const std::uint64_t tail = arena.free.ending_at(arena.end).size;
    const std::uint64_t bytes = round_up(size - std::min(size, tail), chunk);
    if (!meter_.can_grow(bytes)) {
        return false;
    }
    meter_.grow(bytes, [this] {
        return FreeSpace{std::max(arenas_[0].free.largest(), arenas_[1].free.largest()),
                         arenas_[0].free.total() + arenas_[1].free.total()};
    });
    meter_.count_map(bytes, bytes / chunk);
    arena.free.add(arena.end, bytes);
    arena.end += bytes;
    return true;
}

void AsyncModel::release(std::uint64_t keep) {
    for (Arena& arena : arenas_) {
        std::vector<FreeRanges::Range> whole;
        for (const auto& [address, size] : arena.free.ranges()) {
            const std::uint64_t begin = round_up(address, chunk);
            const std::uint64_t end = (address + size) / chunk * chunk;
            if (end > begin) {
                whole.push_back({address, size});
            }
        }
        for (const FreeRanges::Range& range : whole) {
            const std::uint64_t begin = round_up(range.address, chunk);
            const std::uint64_t range_end = range.address + range.size;
            const std::uint64_t wanted = meter_.reserved() - std::min(keep, meter_.reserved());
            const std::uint64_t bytes =
                std::min(range_end / chunk * chunk - begin, wanted / chunk * chunk);
            if (bytes == 0) {
                continue;
            }
            arena.free.remove(range);
            if (begin > range.address) {
                arena.free.add(range.address, begin - range.address);
            }
            if (range_end > begin + bytes) {
                arena.free.add(begin + bytes, range_end - begin - bytes);
            }
            meter_.shrink(bytes);
            meter_.count_unmap(bytes, bytes / chunk);
        }
    }
}

bool AsyncModel::allocate(std::uint32_t id, const Allocation& allocation) {
    if (allocation.requested > max_request) {
        return false;
    }
    LiveBlock block;
    block.requested = allocation.requested;
    block.size = round_up(std::max<std::uint64_t>(allocation.requested, 1), granularity);
    block.small = block.size <= max_small;
    Arena& from = arena(block.small);
    if (!from.free.take_best(block.size, &block.address)) {
        bool grown = expand(from, block.size);
        if (!grown) {
            release(0);
            grown = expand(from, block.size);
        }
        if (!grown || !from.free.take_best(block.size, &block.address)) {
            return false;
        }
    }
    meter_.count_async_call();
    meter_.allocated(block.requested, block.size);
    live_.emplace(id, block);
    return true;
}

void AsyncModel::free(std::uint32_t id) {
    const auto found = live_.find(id);
    const LiveBlock block = found->second;
    live_.erase(found);
    meter_.count_async_call();
    meter_.freed(block.requested, block.size);
    meter_.completed(block.size);
    arena(block.small).free.add(block.address, block.size);
}

}  // namespace memlab::report::whatif
