#include "tests/support/plain_cuda.hpp"

#include <algorithm>

namespace memlab::support {
namespace {

// Bytes in whole units; the largest number of whole units where that is beyond all numbers.
std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
    return bytes > UINT64_MAX - (unit - 1) ? UINT64_MAX / unit * unit
                                           : (bytes + unit - 1) / unit * unit;
}

// The smallest power of two from `least` to `most` that is not less than the length, or `most`.
std::uint64_t block_of(std::uint64_t length, std::uint64_t least, std::uint64_t most) {
    std::uint64_t block = least;
    while (block < most && block < length) {
        block *= 2;
    }
    return block;
}

}  // namespace

bool PlainCuda::take_pages(std::uint64_t bytes) {
    if (free_bytes_ < withheld_ || bytes > free_bytes_ - withheld_) {
        return false;
    }
    free_bytes_ -= bytes;
    return true;
}

bool PlainCuda::take_shared(std::uint64_t id, std::uint64_t bytes, SharedPages& shared) {
    Live live{bytes, &shared, {}};
    if (!shared.take(bytes, live.place)) {
        if (!take_pages(page_bytes)) {
            return false;
        }
        live.place = shared.take_new(bytes);
    }
    live_.emplace(id, live);
    return true;
}

bool PlainCuda::allocate(std::uint64_t id, std::uint64_t bytes) {
    return bytes < page_bytes ? take_shared(id, bytes, of_memory_) : create(id, bytes);
}

bool PlainCuda::create(std::uint64_t id, std::uint64_t bytes) {
    const std::uint64_t taken = round_up(bytes, page_bytes);
    if (!take_pages(taken)) {
        return false;
    }
    live_.emplace(id, Live{taken, nullptr, {}});
    return true;
}

bool PlainCuda::create_array(std::uint64_t id, std::uint64_t row_bytes, std::uint64_t height,
                             std::uint64_t depth) {
    const std::uint64_t bytes = array_bytes(row_bytes, height, depth);
    return bytes < page_bytes ? take_shared(id, bytes, of_arrays_) : create(id, bytes);
}

void PlainCuda::free(std::uint64_t id) {
    const auto found = live_.find(id);
    if (found == live_.end()) {
        return;
    }
    const Live gone = found->second;
    live_.erase(found);
    if (gone.shared == nullptr) {
        free_bytes_ += gone.bytes;
    } else if (gone.shared->give(gone.place, gone.bytes)) {
        free_bytes_ += page_bytes;
    }
}

std::uint64_t PlainCuda::array_bytes(std::uint64_t row_bytes, std::uint64_t height,
                                     std::uint64_t depth) {
    const std::uint64_t rows = std::max<std::uint64_t>(height, 1);
    const std::uint64_t slices = std::max<std::uint64_t>(depth, 1);
    return round_up(row_bytes, 64) * round_up(rows, block_of(rows, 8, 128)) *
           round_up(slices, block_of(slices, 1, 32));
}

}  // namespace memlab::support
