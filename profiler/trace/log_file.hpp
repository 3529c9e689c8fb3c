// A file that grows at its end and survives the death of its process. Guarantees:
//  - what append() returned true for is in the file, whatever kills the process afterwards: it
//    lies in the page cache, either through a shared mapping or through write(2);
//  - no signal is ever raised: mapped pages are allocated on disk before they are mapped (a sparse
//    page on a full disk is a SIGBUS), and nothing grows past RLIMIT_FSIZE (a SIGXFSZ);
//  - a reader never sees half of an append: the first byte is stored last. With write(2), a part
//    that a kill leaves is at the very end of the file.
//
// The mapping is used on the file systems where preallocation is known to be real. Elsewhere
// (network file systems, FUSE: emulated or none, and a server's error would be a SIGBUS) every
// append is one write(2).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace memlab::trace {

enum class LogStorage : std::uint8_t {
    automatic,   ///< mapped where that is safe, else write(2)
    write_only,  ///< write(2) always
};

/// Thread-safety: none.
class LogFile {
  public:
    LogFile() = default;
    LogFile(const LogFile&) = delete;
    LogFile& operator=(const LogFile&) = delete;
    /// Closes the file, as close() does.
    ~LogFile();

    /// Creates `path` exclusively, mode 0666 less the umask (what a report may be read by is the
    /// user's choice, as with any compiler's output). 0, or errno. `limit` bytes at most; 0: none.
    int create(const char* path, std::uint64_t limit, LogStorage storage);

    /// Appends, if `spare` more bytes will still fit afterwards. On false nothing was appended and
    /// why_full() says why; smaller appends may still succeed. `keep_from` is the lowest offset
    /// that a later patch() will name.
    bool append(const std::uint8_t* data, std::size_t size, std::size_t spare,
                std::uint64_t keep_from);

    /// Where up to `size` bytes may be written that are to be appended, all but the first. They are
    /// in the file from appended_in_place() on. Null: append() has to be asked.
    std::uint8_t* room_in_place(std::size_t size) const {
        std::uint8_t* const next = next_.load(std::memory_order_relaxed);
        return next != nullptr && static_cast<std::size_t>(window_end_ - next) >= size ? next
                                                                                       : nullptr;
    }
    /// `size` bytes are there now but for the first, which is this one.
    void appended_in_place(std::uint8_t first, std::size_t size) {
        std::uint8_t* const next = next_.load(std::memory_order_relaxed);
        std::atomic_ref<std::uint8_t>(*next).store(first, std::memory_order_release);
        next_.store(next + size, std::memory_order_relaxed);
        size_ += size;
    }

    /// The CRC-32C of `size` bytes that were appended, none of them below the latest append()'s
    /// `keep_from`. Nothing where they cannot be read.
    std::optional<std::uint32_t> checksum(std::uint64_t offset, std::size_t size) const;

    /// An append() will come soon. From any thread.
    void expect_append() const noexcept;

    /// Overwrites bytes that were appended, the one at `last` after all others.
    void patch(std::uint64_t offset, const std::uint8_t* data, std::size_t size, std::size_t last);

    /// Cuts off what was preallocated and not used, and closes.
    void close();

    /// In a forked child: closes the descriptor and forgets the mapping, which the child does not
    /// have (MADV_DONTFORK; its address may belong to someone else by now).
    void abandon();

    std::uint64_t size() const { return size_; }
    const std::string& why_full() const { return why_full_; }

  private:
    bool grow_mapping(std::uint64_t needed, std::uint64_t keep_from);
    bool map(std::uint64_t keep_from);
    void unmap();
    void fall_back_to_write();
    bool write_at_end(const std::uint8_t* data, std::size_t size);
    std::uint64_t ceiling() const;
    void full_at_ceiling();
    void full_by_errno(int error_number);

    std::atomic<std::uint8_t*> next_ = nullptr;  ///< where the next append goes; or null
    std::uint8_t* window_end_ = nullptr;
    std::uint64_t size_ = 0;  ///< bytes appended
    int descriptor_ = -1;
    bool mapped_mode_ = false;
    std::uint64_t allocated_ = 0;  ///< bytes preallocated
    std::uint8_t* window_ = nullptr;
    std::uint64_t window_start_ = 0;
    std::uint64_t limit_ = 0;
    std::uint64_t chunk_ = 0;
    std::string why_full_;
};

/// "No space left on device (ENOSPC is 28)"-like text of an errno, thread-safe.
std::string describe_errno(int error_number);

}  // namespace memlab::trace
