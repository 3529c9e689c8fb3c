// The pool of CUPTI's activity buffers: bounded, and never unmapped, since CUPTI may write to a
// buffer until the process ends. If none is free CUPTI drops records and counts them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "threads/mutex.hpp"

namespace memlab::profiler::cupti {

/// Thread-safety: all functions, from any thread. Does not call malloc.
class BufferPool {
  public:
    static constexpr std::size_t buffer_bytes = std::size_t{256} << 10;
    static constexpr std::size_t max_buffers = 64;

    /// A buffer of buffer_bytes, 8-byte aligned; null if all are in use or the host is out of
    /// memory.
    std::uint8_t* acquire() noexcept;
    /// Returns a buffer to the pool. Buffers of others are ignored.
    void release(std::uint8_t* buffer) noexcept;

  private:
    threads::Mutex mutex_;
    std::uint8_t* all_[max_buffers] MEMLAB_GUARDED_BY(mutex_) = {};
    std::uint8_t* free_[max_buffers] MEMLAB_GUARDED_BY(mutex_) = {};
    std::size_t count_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::size_t free_count_ MEMLAB_GUARDED_BY(mutex_) = 0;
};

}  // namespace memlab::profiler::cupti
