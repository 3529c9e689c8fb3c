#include "profiler/cupti/buffers.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace memlab::profiler::cupti {

std::uint8_t* BufferPool::acquire() noexcept {
    const threads::LockGuard lock(mutex_);
    if (free_count_ != 0) {
        return free_[--free_count_];
    }
    if (count_ == max_buffers) {
        return nullptr;
    }
    void* const memory =
        mmap(nullptr, buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    return all_[count_++] = static_cast<std::uint8_t*>(memory);
}

void BufferPool::release(std::uint8_t* buffer) noexcept {
    const threads::LockGuard lock(mutex_);
    std::uint8_t** const end = all_ + count_;
    if (std::find(all_, end, buffer) != end && free_count_ < count_) {
        free_[free_count_++] = buffer;
    }
}

}  // namespace memlab::profiler::cupti
