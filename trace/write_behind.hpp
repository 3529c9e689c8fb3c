// Asynchronous appends to a file, by a writer thread with a ring buffer. For slow file systems: the
// recorded program never waits for a write, even if the server of a network file system hangs for
// minutes. The thread writes batches, some milliseconds after they were appended; a SIGKILL loses
// what is buffered. The buffer is 4 MiB; append() fails while it is full.
//
// The thread blocks all signals, and uses neither the heap nor other state of the program.
#pragma once

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "threads/mutex.hpp"
#include "trace/own_descriptor.hpp"

namespace memlab::trace {

/// Writes all of it at `offset`; false: errno says why not, and a part may be written.
bool write_all(int descriptor, const std::uint8_t* data, std::size_t size, std::uint64_t offset);

/// The same with zeros, from one offset to another.
bool write_zeros(int descriptor, std::uint64_t from, std::uint64_t to);

/// Overwrites `size` bytes of the file at `offset`, the one at `last` after all others, and only if
/// writing those succeeded.
void write_over(int descriptor, std::uint64_t offset, const std::uint8_t* data, std::size_t size,
                std::size_t last);

/// Thread-safety: one caller at a time; the writer thread is synchronized internally.
class WriteBehind {
  public:
    /// `size` is the current size of the file. Null when there is no memory or no thread; `file` is
    /// then unchanged.
    static WriteBehind* start(const OwnDescriptor& file, std::uint64_t size);

    WriteBehind(const WriteBehind&) = delete;
    WriteBehind& operator=(const WriteBehind&) = delete;

    /// Size of the ring buffer in bytes, and with this object.
    static constexpr std::size_t capacity = std::size_t{4} << 20;
    static constexpr std::size_t mapping_size = capacity + 32768;

    enum class Outcome : std::uint8_t {
        appended,
        full,    ///< the file system is too slow
        failed,  ///< see failure()
    };
    /// Appends, if `spare` more bytes would still fit. `events`: the number of events in the data.
    Outcome append(const std::uint8_t* data, std::size_t size, std::size_t spare, unsigned events);

    /// Later appends go to the file's bytes from `offset` on, up to `end` at most. What is there is
    /// overwritten with zeros first, up to some kilobytes behind what is appended.
    void move_to(std::uint64_t offset, std::uint64_t end);

    /// Whether `size` more bytes leave half of the buffer free.
    bool has_room_for(std::size_t size);

    /// Overwrites appended bytes, in the buffer or in the file; since the latest move_to(). They
    /// seal the block that ends with the latest append.
    void patch(std::uint64_t offset, const std::uint8_t* data, std::size_t size, std::size_t last);

    /// Goes on with the CRC-32C `sum` over appended bytes, which must be among the last 4 MiB and
    /// behind the start and the latest move_to(). False where it is not available.
    /// Without the lock: only the appending thread changes the latest extent, and it calls.
    bool add_checksum(std::uint64_t offset, std::size_t size,
                      std::uint32_t* sum) const MEMLAB_UNCHECKED_LOCKS;

    /// The state after a failed write: the file was cut back to whole appends, which end at `size`,
    /// where the limit is `end`; `lost_events` appended events were lost. After give_up(), append()
    /// accepts up to 1 KiB to follow there, written if possible.
    struct Failure {
        int error_number = 0;  ///< 0: the descriptor was closed by the program
        std::uint64_t size = 0;
        std::uint64_t end = 0;
        std::uint64_t lost_events = 0;
    };
    Failure give_up();

    /// Writes everything, closes the file and frees `self`. Returns 0; the errno of a failure that
    /// give_up() has not reported (EBADF: the descriptor was closed by the program); or ETIMEDOUT
    /// after `timeout_ns`: then the thread continues in the background.
    static int finish(WriteBehind* self, std::uint64_t timeout_ns);

  private:
    explicit WriteBehind(const OwnDescriptor& file, std::uint64_t size);
    static void* run(void* self);
    void loop();
    bool is_done() const MEMLAB_REQUIRES(mutex_);
    void add_cut_point(bool ends_block) MEMLAB_REQUIRES(mutex_);
    struct CutPoint;
    struct Extent;
    struct Patches;
    bool drain();
    bool write_range(std::uint64_t begin, std::uint64_t end, Patches& patches);
    void apply(Patches& patches, std::uint64_t end);
    void write_tail();
    void cut_back();
    CutPoint find_cut(std::uint64_t size) const MEMLAB_REQUIRES(mutex_);
    bool clear_from(const Extent& extent, std::uint64_t offset);
    bool write_in_extent(const Extent& extent, std::uint64_t begin, std::uint64_t end);
    bool write_withheld(std::uint64_t to);
    bool clear_ahead(const Extent& extent, std::uint64_t end);
    std::uint64_t stream_offset(std::uint64_t file_offset) const MEMLAB_REQUIRES(mutex_);
    std::uint64_t file_offset(std::uint64_t offset) const MEMLAB_REQUIRES(mutex_);
    const Extent& extent_of(std::uint64_t offset) const MEMLAB_REQUIRES(mutex_);
    std::uint64_t end_of_extent(std::uint64_t offset) const MEMLAB_REQUIRES(mutex_);
    const Extent& extent_that_ends(std::uint64_t offset) const MEMLAB_REQUIRES(mutex_);
    const std::uint8_t* at(std::uint64_t offset) const { return ring_ + offset % capacity; }

    /// Where a part of the stream of appended bytes is in the file.
    struct Extent {
        std::uint64_t begin = 0;   ///< in the stream
        std::uint64_t offset = 0;  ///< in the file
        std::uint64_t end = 0;     ///< the limit, in the file
        /// All but the first one.
        bool is_moved() const { return begin != offset; }
    };
    struct CutPoint {
        std::uint64_t offset = 0;
        std::uint64_t events = 0;
        bool ends_block = false;
    };
    struct Patch {
        std::uint64_t offset;  ///< in the stream
        std::uint64_t to;      ///< in the file
        std::uint8_t size;
        std::uint8_t last;
        std::array<std::uint8_t, 14> bytes;
    };

    static constexpr std::size_t cut_point_distance = 16384;
    static constexpr std::size_t max_patches = 128;
    static constexpr std::size_t tail_capacity = 1024;
    /// What is left to apply of those that a drain() took, in the order of the stream.
    struct Patches {
        std::array<Patch, max_patches> each;
        std::size_t count = 0;
        std::size_t done = 0;
    };
    static constexpr std::uint64_t nothing_withheld = std::numeric_limits<std::uint64_t>::max();

    OwnDescriptor file_;
    std::uint8_t* ring_ = nullptr;
    threads::Mutex mutex_;  // never held in a system call
    pthread_cond_t changed_{};
    bool idle_ MEMLAB_GUARDED_BY(mutex_) = false;  ///< the thread waits for the first append
    bool finishing_ MEMLAB_GUARDED_BY(mutex_) = false;
    bool finished_ MEMLAB_GUARDED_BY(mutex_) = false;
    int close_error_ MEMLAB_GUARDED_BY(mutex_) = 0;

    // Offsets in the stream, which are those in the file until move_to(); and events up to there.
    std::uint64_t appended_ MEMLAB_GUARDED_BY(mutex_);
    std::uint64_t appended_events_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::uint64_t written_ MEMLAB_GUARDED_BY(mutex_);
    std::uint64_t written_events_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::uint64_t writing_
        MEMLAB_GUARDED_BY(mutex_);  ///< up to here the thread may have read the ring
    /// Record boundaries at which the file may be truncated; a ring of the latest ones.
    std::array<CutPoint, 512> cut_points_ MEMLAB_GUARDED_BY(mutex_){};
    std::size_t cut_point_count_ MEMLAB_GUARDED_BY(mutex_) = 0;
    /// A ring of the latest ones: more than there is space for in the buffer.
    std::array<Extent, 64> extents_ MEMLAB_GUARDED_BY(mutex_){};
    std::size_t extent_count_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::array<Patch, max_patches> patches_ MEMLAB_GUARDED_BY(mutex_){};
    std::size_t patch_count_ MEMLAB_GUARDED_BY(mutex_) = 0;

    // Of the thread: the file's size, what was there in the latest extent, up to where it is zero.
    std::uint64_t file_size_ = 0;
    std::uint64_t progress_ = 0;  ///< in the stream: up to here it was written
    std::uint64_t tried_ = 0;     ///< in the stream: nothing was written from here on
    bool overwrites_ = false;     ///< there is older data in the latest extent, or was
    std::uint64_t clearing_ = 0;
    std::uint64_t stale_end_ = 0;
    std::uint64_t cleared_ = 0;
    std::uint64_t withheld_ = nothing_withheld;  ///< in the stream: a byte that is written last

    bool failed_ MEMLAB_GUARDED_BY(mutex_) = false;
    bool given_up_ MEMLAB_GUARDED_BY(mutex_) = false;
    int error_number_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::array<std::uint8_t, tail_capacity> tail_ MEMLAB_GUARDED_BY(mutex_){};
    std::size_t tail_size_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::uint64_t tail_offset_ MEMLAB_GUARDED_BY(mutex_) = 0;  ///< in the file
    std::uint64_t tail_end_ MEMLAB_GUARDED_BY(mutex_) = 0;     ///< the limit there
    bool tail_changed_ MEMLAB_GUARDED_BY(mutex_) = false;
    int tail_error_ MEMLAB_GUARDED_BY(mutex_) = 0;
};

}  // namespace memlab::trace
