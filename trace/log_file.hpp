// A file that grows at its end and survives the death of its process. Guarantees:
//  - what append() returned true for is in the file, whatever kills the process afterwards: it
//    lies in the page cache, either through a shared mapping or through write(2); where a thread
//    writes it, a SIGKILL takes the last milliseconds along;
//  - no signal is ever raised: mapped pages are allocated on disk before they are mapped (a sparse
//    page on a full disk is a SIGBUS), and nothing grows past RLIMIT_FSIZE (a SIGXFSZ);
//  - a reader never sees half of an append: the first byte is stored last. When it is written, a
//  part
//    that a kill leaves is at the very end of the file;
//  - a descriptor that the program closed is never written to again, whoever has it now.
//
// The mapping is used on the file systems where preallocation is known to be real and stores go to
// the blocks that it reserved. Elsewhere (copy-on-write: a store needs new blocks, and a full disk
// is then a SIGBUS; network file systems and FUSE: emulated preallocation, a server's error is a
// SIGBUS and its answer takes its time) a thread writes what is appended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "trace/own_descriptor.hpp"
#include "trace/write_behind.hpp"

namespace memlab::trace {

enum class LogStorage : std::uint8_t {
    automatic,     ///< mapped where that is safe, else written by a thread
    write_behind,  ///< written by a thread always
    write_only,    ///< write(2) at each append
};

/// Thread-safety: none.
class LogFile {
  public:
    LogFile() = default;
    LogFile(const LogFile&) = delete;
    LogFile& operator=(const LogFile&) = delete;
    /// Closes the file, as close() does.
    ~LogFile();

    /// Creates `path` exclusively, with `mode` less the umask. 0, or errno. `limit` bytes at most;
    /// 0: none.
    int create(const char* path, std::uint64_t limit, LogStorage storage, unsigned mode);

    /// Appends, if `spare` more bytes will still fit afterwards. On false nothing was appended and
    /// why_full() says why; smaller appends may still succeed, and what was appended before may be
    /// lost: size() says how much there is. `keep_from` is the lowest offset that a later patch()
    /// will name; `events` is what lost_events() counts.
    bool append(const std::uint8_t* data, std::size_t size, std::size_t spare,
                std::uint64_t keep_from, unsigned events = 0);

    /// Of appends that succeeded and are lost all the same.
    std::uint64_t lost_events() const { return lost_events_; }

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
    void prefetch_append() const noexcept;

    /// Overwrites bytes that were appended, the one at `last` after all others.
    void patch(std::uint64_t offset, const std::uint8_t* data, std::size_t size, std::size_t last);

    /// Cuts off what was preallocated and not used, and closes. Waits a few seconds at most for a
    /// file system that does not answer. why_incomplete() says what is missing then.
    void close();

    /// In a forked child: closes the descriptor and forgets the mapping, which the child does not
    /// have (MADV_DONTFORK; its address may belong to someone else by now).
    void abandon();

    std::uint64_t size() const { return size_; }
    /// Whether a patch() costs no more than storing the bytes.
    bool is_mapped() const { return mapped_mode_; }
    const std::string& why_full() const { return why_full_; }
    /// Empty, or a sentence (no path, no full stop): the file lacks what was appended last. After
    /// close().
    std::string why_incomplete() const;

  private:
    bool grow_mapping(std::uint64_t needed, std::uint64_t keep_from);
    bool map(std::uint64_t keep_from);
    void unmap();
    void fall_back_to_write();
    bool write_behind(const std::uint8_t* data, std::size_t size, std::size_t spare,
                      unsigned events);
    void full_by_closing();
    bool write_at_end(const std::uint8_t* data, std::size_t size);
    std::uint64_t ceiling() const;
    void full_at_ceiling();
    void full_by_errno(int error_number);

    std::atomic<std::uint8_t*> next_ = nullptr;  ///< where the next append goes; or null
    std::uint8_t* window_end_ = nullptr;
    std::uint64_t size_ = 0;  ///< bytes appended
    OwnDescriptor file_;
    WriteBehind* behind_ = nullptr;  ///< the thread that writes, if one does
    bool open_ = false;              ///< something may still be appended
    bool mapped_mode_ = false;
    std::uint64_t allocated_ = 0;  ///< bytes preallocated
    std::uint8_t* window_ = nullptr;
    std::uint64_t window_start_ = 0;
    std::uint64_t limit_ = 0;
    std::uint64_t chunk_ = 0;
    std::uint64_t lost_events_ = 0;
    int close_error_ = 0;
    std::string why_full_;
};

/// "No space left on device (ENOSPC is 28)"-like text of an errno, thread-safe.
std::string describe_errno(int error_number);

}  // namespace memlab::trace
