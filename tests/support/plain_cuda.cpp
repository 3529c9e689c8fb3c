#include "tests/support/plain_cuda.hpp"

namespace memlab::support {

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

}  // namespace memlab::support
