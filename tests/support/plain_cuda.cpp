#include "tests/support/plain_cuda.hpp"

#include <iterator>

namespace memlab::support {

bool PlainCuda::take(Page& page, std::uint64_t bytes, std::uint64_t& offset) {
    for (auto it = page.free.begin(); it != page.free.end(); ++it) {
        const auto [begin, length] = *it;
        if (length < bytes) {
            continue;
        }
        page.free.erase(it);
        if (length > bytes) {
            page.free.emplace(begin + bytes, length - bytes);
        }
        offset = begin;
        return true;
    }
    return false;
}

bool PlainCuda::allocate(std::uint64_t id, std::uint64_t bytes) {
    if (bytes > small_bytes) {
        return create(id, bytes);
    }
    Live live{(bytes + small_step - 1) / small_step * small_step, none, 0};
    for (auto& [number, page] : pages_) {
        if (take(page, live.bytes, live.offset)) {
            live.page = number;
            break;
        }
    }
    if (live.page == none) {
        if (free_bytes_ < page_bytes) {
            return false;
        }
        free_bytes_ -= page_bytes;
        live.page = next_page_++;
        Page& page = pages_[live.page];
        page.free.emplace(0, page_bytes);
        take(page, live.bytes, live.offset);
    }
    live_.emplace(id, live);
    return true;
}

bool PlainCuda::create(std::uint64_t id, std::uint64_t bytes) {
    if (bytes > free_bytes_) {
        return false;
    }
    const std::uint64_t taken = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    if (taken > free_bytes_) {
        return false;
    }
    free_bytes_ -= taken;
    live_.emplace(id, Live{taken, none, 0});
    return true;
}

void PlainCuda::free(std::uint64_t id) {
    const auto found = live_.find(id);
    if (found == live_.end()) {
        return;
    }
    const Live gone = found->second;
    live_.erase(found);
    if (gone.page == none) {
        free_bytes_ += gone.bytes;
        return;
    }
    auto& free = pages_.at(gone.page).free;
    auto it = free.emplace(gone.offset, gone.bytes).first;
    if (const auto after = std::next(it);
        after != free.end() && it->first + it->second == after->first) {
        it->second += after->second;
        free.erase(after);
    }
    if (it != free.begin()) {
        const auto before = std::prev(it);
        if (before->first + before->second == it->first) {
            before->second += it->second;
            free.erase(it);
            it = before;
        }
    }
    if (it->second == page_bytes) {
        pages_.erase(gone.page);
        free_bytes_ += page_bytes;
    }
}

}  // namespace memlab::support
