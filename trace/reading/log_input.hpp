// The bytes of a log that is read: memory, or a file through a buffer.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace memlab::trace {

/// A window that slides over the input. May throw std::bad_alloc. Thread-safety: none.
class LogInput {
  public:
    LogInput(const std::uint8_t* data, std::size_t size)
        : begin_(data), size_(size), data_(data), available_(size) {}
    /// `bytes_read` may be null.
    LogInput(int descriptor, std::atomic<std::uint64_t>* bytes_read)
        : descriptor_(descriptor), bytes_read_(bytes_read) {}

    /// Makes `wanted` bytes available, or all that is left up to the limit. Returns the number
    /// available.
    std::size_t need(std::size_t wanted) {
        const std::uint64_t left = limit_ - offset_;
        wanted = static_cast<std::size_t>(std::min<std::uint64_t>(wanted, left));
        while (descriptor_ >= 0 && available_ < wanted && !at_end_) {
            fill(wanted);
        }
        return static_cast<std::size_t>(std::min<std::uint64_t>(available_, left));
    }
    const std::uint8_t* data() const { return data_; }
    void consume(std::size_t size) {
        data_ += size;
        available_ -= size;
        offset_ += size;
    }
    std::uint64_t offset() const { return offset_; }
    /// The errno of a read that failed: of the latest part, or of any peek().
    int error() const { return error_ != 0 ? error_ : peek_error_; }

    /// Continues at `offset`, up to `limit`.
    void seek(std::uint64_t offset, std::uint64_t limit) {
        offset_ = offset;
        limit_ = limit;
        if (descriptor_ < 0) {
            const std::uint64_t at = std::min<std::uint64_t>(offset, size_);
            data_ = begin_ + at;
            available_ = size_ - static_cast<std::size_t>(at);
            return;
        }
        available_ = 0;
        at_end_ = lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) < 0;
        error_ = at_end_ ? errno : 0;
    }

    /// Up to where the file goes now: its end may move away as fast as it is read.
    void stop_at_present_end() {
        struct stat status {};
        if (descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)) {
            limit_ = static_cast<std::uint64_t>(status.st_size);
        }
    }

    /// Copies the `size` bytes at `offset`; false where there are fewer. The window stays.
    bool peek(std::uint64_t offset, std::uint8_t* to, std::size_t size) const {
        if (descriptor_ < 0) {
            if (offset > size_ || size > size_ - offset) {
                return false;
            }
            std::memcpy(to, begin_ + offset, size);
            return true;
        }
        while (size != 0) {
            const ssize_t got = pread(descriptor_, to, size, static_cast<off_t>(offset));
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got <= 0) {
                peek_error_ = got < 0 ? errno : peek_error_;
                return false;
            }
            to += got;
            offset += static_cast<std::uint64_t>(got);
            size -= static_cast<std::size_t>(got);
        }
        return true;
    }

  private:
    void fill(std::size_t wanted) {
        constexpr std::size_t step = std::size_t{64} << 10;
        if (available_ != 0) {
            std::memmove(buffer_.data(), data_, available_);
        }
        // In steps, so that a corrupt length allocates no more than the file has.
        const std::size_t goal = std::min(wanted, available_ + step);
        if (buffer_.size() < goal) {
            buffer_.resize(std::max(goal, std::min(buffer_.size() * 2, wanted)));
        }
        data_ = buffer_.data();
        const ssize_t got =
            read(descriptor_, buffer_.data() + available_, buffer_.size() - available_);
        if (got > 0) {
            available_ += static_cast<std::size_t>(got);
            if (bytes_read_ != nullptr) {
                bytes_read_->fetch_add(static_cast<std::uint64_t>(got), std::memory_order_relaxed);
            }
        } else if (got == 0 || errno != EINTR) {
            error_ = got == 0 ? 0 : errno;
            at_end_ = true;
        }
    }

    const std::uint8_t* begin_ = nullptr;
    std::size_t size_ = 0;
    const std::uint8_t* data_ = nullptr;
    std::size_t available_ = 0;
    std::uint64_t offset_ = 0;
    std::uint64_t limit_ = std::numeric_limits<std::uint64_t>::max();
    int descriptor_ = -1;
    std::atomic<std::uint64_t>* bytes_read_ = nullptr;
    bool at_end_ = false;
    int error_ = 0;
    mutable int peek_error_ = 0;
    std::vector<std::uint8_t> buffer_;
};

}  // namespace memlab::trace
