#include "report/whatif/free_space_at_peak.hpp"

#include <algorithm>

namespace memlab::whatif {

void PastSpace::reserve(std::uint32_t owner, std::uint64_t address, std::uint64_t bytes) {
    reserved_[owner].emplace(address, Piece{bytes, moment_});
}

void PastSpace::release(std::uint32_t owner, std::uint64_t address, std::uint64_t bytes) {
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
        if (was_there(piece.after)) {
            released_.push_back({from, to - from});
        }
        at = pieces.erase(at);
        if (begin < from) {
            pieces.emplace(begin, Piece{from - begin, piece.after});
        }
        if (to < piece_end) {
            pieces.emplace(to, Piece{piece_end - to, piece.after});
        }
    }
}

void PastSpace::release_all(std::uint32_t owner) {
    const auto found = reserved_.find(owner);
    if (found == reserved_.end()) {
        return;
    }
    for (const auto& [address, piece] : found->second) {
        if (was_there(piece.after)) {
            released_.push_back({address, piece.size});
        }
    }
    reserved_.erase(found);
}

PastSpace::Place PastSpace::take(std::uint64_t address, std::uint64_t size) {
    Place place = free_place_;
    if (place == none) {
        place = static_cast<Place>(blocks_.size());
        blocks_.emplace_back();
    } else {
        free_place_ = static_cast<Place>(blocks_[place].address);
    }
    blocks_[place] = {address, size, moment_};
    return place;
}

void PastSpace::give_back(Place place) {
    Block& block = blocks_[place];
    if (was_there(block.after)) {
        given_back_.push_back({block.address, block.size});
    }
    block = {free_place_, 0, 0};
    free_place_ = place;
}

void PastSpace::remember() {
    ++moment_;
    released_.clear();
    given_back_.clear();
}

std::vector<PastSpace::Range> PastSpace::in_order(std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return a.address < b.address; });
    return ranges;
}

FreeSpace PastSpace::then() const {
    std::vector<Range> reserved = released_;
    for (const auto& [owner, pieces] : reserved_) {
        for (const auto& [address, piece] : pieces) {
            if (was_there(piece.after)) {
                reserved.push_back({address, piece.size});
            }
        }
    }
    std::vector<Range> used = given_back_;
    for (const Block& block : blocks_) {
        if (block.size != 0 && was_there(block.after)) {
            used.push_back({block.address, block.size});
        }
    }
    reserved = in_order(std::move(reserved));
    used = in_order(std::move(used));

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

}  // namespace memlab::whatif
