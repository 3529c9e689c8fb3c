#include "report/whatif/free_space_at_peak.hpp"

#include <algorithm>

namespace memlab::report::whatif {

void FreeSpaceAtPeak::reserve(std::uint32_t owner, std::uint64_t address, std::uint64_t bytes) {
    reserved_[owner].emplace(address, Piece{bytes, snapshot_count_});
}

void FreeSpaceAtPeak::release(std::uint32_t owner, std::uint64_t address, std::uint64_t bytes) {
    Pieces& pieces = reserved_[owner];
    const std::uint64_t end = address + bytes;
    auto at = pieces.upper_bound(address);
    if (at != pieces.begin()) {
        --at;
    }
    while (at != pieces.end() && at->first < end) {
        const std::uint64_t begin = at->first;
        const Piece piece = at->second;
        const std::uint64_t piece_end = begin + piece.size;
        if (piece_end <= address) {
            ++at;
            continue;
        }
        const std::uint64_t from = std::max(begin, address);
        const std::uint64_t to = std::min(piece_end, end);
        if (in_snapshot(piece.born)) {
            released_.push_back({from, to - from});
        }
        at = pieces.erase(at);
        if (begin < from) {
            pieces.emplace(begin, Piece{from - begin, piece.born});
        }
        if (to < piece_end) {
            pieces.emplace(to, Piece{piece_end - to, piece.born});
        }
    }
}

void FreeSpaceAtPeak::release_all(std::uint32_t owner) {
    const auto found = reserved_.find(owner);
    if (found == reserved_.end()) {
        return;
    }
    for (const auto& [address, piece] : found->second) {
        if (in_snapshot(piece.born)) {
            released_.push_back({address, piece.size});
        }
    }
    reserved_.erase(found);
}

FreeSpaceAtPeak::Slot FreeSpaceAtPeak::allocate(std::uint64_t address, std::uint64_t size) {
    Slot slot = free_slot_;
    if (slot == none) {
        slot = static_cast<Slot>(blocks_.size());
        blocks_.emplace_back();
    } else {
        free_slot_ = static_cast<Slot>(blocks_[slot].address);
    }
    blocks_[slot] = {address, size, snapshot_count_};
    return slot;
}

void FreeSpaceAtPeak::free(Slot slot) {
    Block& block = blocks_[slot];
    if (in_snapshot(block.born)) {
        freed_.push_back({block.address, block.size});
    }
    block = {free_slot_, 0, 0};
    free_slot_ = slot;
}

void FreeSpaceAtPeak::snapshot() {
    ++snapshot_count_;
    released_.clear();
    freed_.clear();
}

std::vector<FreeSpaceAtPeak::Range> FreeSpaceAtPeak::sorted_by_address(std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return a.address < b.address; });
    return ranges;
}

FreeSpace FreeSpaceAtPeak::free_space() const {
    std::vector<Range> reserved = released_;
    for (const auto& [owner, pieces] : reserved_) {
        for (const auto& [address, piece] : pieces) {
            if (in_snapshot(piece.born)) {
                reserved.push_back({address, piece.size});
            }
        }
    }
    std::vector<Range> used = freed_;
    for (const Block& block : blocks_) {
        if (block.size != 0 && in_snapshot(block.born)) {
            used.push_back({block.address, block.size});
        }
    }
    reserved = sorted_by_address(std::move(reserved));
    used = sorted_by_address(std::move(used));

    FreeSpace space;
    const auto count = [&](std::uint64_t bytes) {
        space.largest = std::max(space.largest, bytes);
        space.total += bytes;
    };
    auto block = used.begin();
    for (auto range = reserved.begin(); range != reserved.end();) {
        std::uint64_t free_from = range->address;
        std::uint64_t end = free_from;
        for (; range != reserved.end() && range->address == end; ++range) {
            end += range->size;
        }
        for (; block != used.end() && block->address < end; ++block) {
            count(block->address - free_from);
            free_from = block->address + block->size;
        }
        count(end - free_from);
    }
    return space;
}

}  // namespace memlab::report::whatif
