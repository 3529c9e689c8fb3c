// An append-only file that survives the death of its process. Guarantees:
//  - after append() returned true, the data is in the page cache (through a shared mapping or
//    write(2)), whatever kills the process. Exception: where a thread writes, a SIGKILL loses the
//    last milliseconds;
//  - no signal is raised: pages are allocated on disk before they are mapped (storing to a sparse
//    page on a full disk is a SIGBUS), and the file never grows past RLIMIT_FSIZE (a SIGXFSZ);
//  - a reader never sees a partial append: in a mapping the first byte is stored last; with
//    write(2) a partial append can only be at the very end of the file, and after move_to() the
//    first byte is written last;
//  - after the program has closed the descriptor it is never written to, whatever it is reused for.
//
// The mapping is used on file systems where preallocation reserves the blocks that stores go to.
// Elsewhere a thread writes: on copy-on-write file systems a store needs new blocks, so a full disk
// is a SIGBUS; on network file systems and FUSE preallocation is emulated, a server's error is a
// SIGBUS, and the server may respond slowly.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "trace/own_descriptor.hpp"
#include "trace/write_behind.hpp"

namespace memlab::trace {

enum class LogStorage : std::uint8_t {
    automatic,     ///< mapped where that is safe, else written by a thread
    write_behind,  ///< always written by a thread
    write_only,    ///< write(2) in each append
};

/// Thread-safety: none.
class LogFile {
  public:
    LogFile() = default;
    LogFile(const LogFile&) = delete;
    LogFile& operator=(const LogFile&) = delete;
    /// Closes the file, as close() does.
    ~LogFile();

    /// Creates `path` exclusively, with `mode` minus the umask. 0, or errno. `limit` is the maximum
    /// size in bytes; 0: none.
    int create(const char* path, std::uint64_t limit, LogStorage storage, unsigned mode);

    /// Appends, if `spare` more bytes will still fit afterwards. On false nothing was appended and
    /// why_full() has the reason; smaller appends may still succeed, and earlier appends may be
    /// lost: size() is what remains. `keep_from` is the lowest offset of any later patch();
    /// `events` is the number of events in the data, for lost_events().
    bool append(const std::uint8_t* data, std::size_t size, std::size_t spare,
                std::uint64_t keep_from, unsigned events = 0);

    /// The events of appends that succeeded and were lost later.
    std::uint64_t lost_events() const { return lost_events_; }

    /// A buffer for up to `size` bytes to append; the caller writes all but the first and calls
    /// commit_in_place(). Null: use append() instead.
    std::uint8_t* reserve_in_place(std::size_t size) const {
        std::uint8_t* const next = next_.load(std::memory_order_relaxed);
        return next != nullptr && static_cast<std::size_t>(window_end_ - next) >= size ? next
                                                                                       : nullptr;
    }
    /// Appends the `size` bytes at reserve_in_place(), by storing the first one.
    void commit_in_place(std::uint8_t first, std::size_t size) {
        std::uint8_t* const next = next_.load(std::memory_order_relaxed);
        std::atomic_ref<std::uint8_t>(*next).store(first, std::memory_order_release);
        next_.store(next + size, std::memory_order_relaxed);
        size_ += size;
    }

    /// Where appends go: `offset` is the end of the data, `end` the limit of it and of what `spare`
    /// reserves. Up to `prepared` the file is allocated and zero behind the data. All of them in
    /// whole pages, except `offset`.
    struct Extent {
        std::uint64_t offset = 0;
        std::uint64_t prepared = 0;
        std::uint64_t end = 0;
    };
    Extent extent() const { return {size_, allocated_, extent_end_}; }
    /// Limits appends to the file's first `end` bytes. Call before the first append.
    void set_first_extent(std::uint64_t end) { extent_end_ = end; }
    /// Moves to another extent, which may have been written to before; then at least `spare` bytes
    /// behind the data are always zero. Or back to the one before, if nothing was appended here.
    void move_to(const Extent& extent);
    /// Whether move_to() is possible.
    bool can_move() const { return open_ && (mapped_mode_ || behind_ != nullptr); }
    /// Whether `size` bytes that can wait are appended without a risk that others find no space.
    bool has_room_for(std::size_t size) const;

    /// The CRC-32C of `size` appended bytes, none of them below the latest append()'s `keep_from`.
    /// None where they cannot be read back.
    std::optional<std::uint32_t> checksum(std::uint64_t offset, std::size_t size) const;

    /// Prefetches what the next append() writes. From any thread.
    void prefetch_append() const noexcept;

    /// Overwrites appended bytes, the one at `last` after all others. Where that is `size`, they
    /// are a little-endian number that only grows: a reader never sees more than the new one.
    void patch(std::uint64_t offset, const std::uint8_t* data, std::size_t size, std::size_t last);

    /// Truncates the unused preallocation and closes. Waits a few seconds at most for a file system
    /// that does not respond; then why_incomplete() has the reason.
    void close();

    /// In a forked child: closes the descriptor and drops the mapping without unmapping it: the
    /// child does not inherit it (MADV_DONTFORK), and its addresses may be in use.
    void abandon();

    /// The end of the data: after move_to() not the number of bytes appended.
    std::uint64_t size() const { return size_; }
    /// Whether a patch() costs no more than storing the bytes.
    bool is_mapped() const { return mapped_mode_; }
    const std::string& why_full() const { return why_full_; }
    /// After close(): empty, or a sentence (no path, no full stop) saying why the latest appends
    /// may be missing.
    std::string why_incomplete() const;

  private:
    bool grow_mapping(std::uint64_t needed, std::uint64_t keep_from);
    bool map(std::uint64_t keep_from);
    bool add_checksum(std::uint64_t offset, std::size_t size, std::uint32_t* sum) const;
    void unmap();
    void fall_back_to_write();
    bool write_behind(const std::uint8_t* data, std::size_t size, std::size_t spare,
                      unsigned events);
    void report_closed_descriptor();
    bool write_at_end(const std::uint8_t* data, std::size_t size);
    std::uint64_t size_limit() const;
    void report_size_limit();
    void report_errno(int error_number);

    std::atomic<std::uint8_t*> next_ = nullptr;  ///< the end of the data in the window, or null
    std::uint8_t* window_end_ = nullptr;
    std::uint64_t size_ = 0;  ///< the end of the data
    OwnDescriptor file_;
    WriteBehind* behind_ = nullptr;  ///< the writer thread, or null
    bool open_ = false;              ///< appends are possible
    bool mapped_mode_ = false;
    std::uint64_t allocated_ = 0;     ///< up to here the extent is allocated and zero
    std::uint64_t file_end_ = 0;      ///< up to here the file is allocated
    std::uint64_t mapped_until_ = 0;  ///< up to here behind_ has seen nothing
    std::uint64_t extent_start_ = 0;
    std::uint64_t extent_end_ = std::numeric_limits<std::uint64_t>::max();
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
