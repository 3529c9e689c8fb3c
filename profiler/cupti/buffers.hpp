// The buffers that CUPTI fills with records: a bounded number, never given back to the system,
// since CUPTI may write into one until the process is gone. Without a free one CUPTI drops records
// and counts them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace memlab::profiler::cupti {

/// Thread-safety: all functions, from any thread. Asks malloc for nothing.
class BufferPool {
  public:
    static constexpr std::size_t buffer_bytes = std::size_t{256} << 10;
    static constexpr std::size_t max_buffers = 64;

    /// A buffer of buffer_bytes, 8-byte aligned; null when all are in use or the host has no
    /// memory.
    std::uint8_t* take() noexcept;
    /// Back to the free ones. Others' buffers are ignored.
    void put_back(std::uint8_t* buffer) noexcept;

  private:
    std::mutex mutex_;
    std::uint8_t* all_[max_buffers] = {};
    std::uint8_t* free_[max_buffers] = {};
    std::size_t made_ = 0;
    std::size_t free_count_ = 0;
};

}  // namespace memlab::profiler::cupti
