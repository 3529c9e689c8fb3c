#include "trace/log_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>

#include "threads/no_cancellation.hpp"
#include "trace/crc32c.hpp"
#include "trace/prefetch.hpp"

namespace memlab::trace {
namespace {

constexpr std::uint64_t page_size = 4096;  // x86-64
constexpr std::uint64_t first_chunk = std::uint64_t{64} << 10;
constexpr std::uint64_t max_chunk = std::uint64_t{1} << 20;

constexpr std::uint64_t page_floor(std::uint64_t offset) {
    return offset & ~(page_size - 1);
}
constexpr std::uint64_t page_ceiling(std::uint64_t offset) {
    return page_floor(offset + page_size - 1);
}

/// The current RLIMIT_FSIZE, which the program may change at any time.
std::uint64_t file_size_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return std::numeric_limits<std::uint64_t>::max();
    }
    return limit.rlim_cur;
}

/// Local file systems whose fallocate() reserves the blocks that stores to mapped pages go to. Not
/// Btrfs, F2FS, ZFS or bcachefs, which are copy-on-write or log-structured. Overlayfs may be on top
/// of any of them, so only where it passes on the extent flag of Ext4's files.
bool can_be_mapped(int descriptor) {
    constexpr std::uint64_t xfs = 0x58465342;
    struct statfs status {};
    if (fstatfs(descriptor, &status) != 0) {
        return false;
    }
    switch (static_cast<std::uint64_t>(status.f_type) & 0xffffffff) {
        case EXT4_SUPER_MAGIC:
        case TMPFS_MAGIC:
        case xfs:
            return true;
        case OVERLAYFS_SUPER_MAGIC: {
            int flags = 0;
            return ioctl(descriptor, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_EXTENT_FL) != 0;
        }
        default:
            return false;
    }
}

int allocate(int descriptor, std::uint64_t from, std::uint64_t to) {
    while (fallocate(descriptor, 0, static_cast<off_t>(from), static_cast<off_t>(to - from)) != 0) {
        if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

void store_release(std::uint8_t* byte, std::uint8_t value) {
    std::atomic_ref<std::uint8_t>(*byte).store(value, std::memory_order_release);
}

/// One store where the processor has one that is not divided: of 8 bytes in a cache line. Else the
/// low bytes come first, so that a reader in between sees less, not more.
void store_number(std::uint8_t* target, const std::uint8_t* data, std::size_t size) {
    using Number [[gnu::aligned(1), gnu::may_alias]] = std::uint64_t;
    constexpr std::uintptr_t line = 64;
    if (size == sizeof(Number) &&
        reinterpret_cast<std::uintptr_t>(target) % line <= line - sizeof(Number)) {
        std::uint64_t value = 0;
        std::memcpy(&value, data, sizeof value);
        std::atomic_signal_fence(std::memory_order_release);
        *reinterpret_cast<volatile Number*>(target) = value;
        return;
    }
    for (std::size_t i = 0; i < size; ++i) {
        store_release(target + i, data[i]);
    }
}

}  // namespace

std::string describe_errno(int error_number) {
    char buffer[128] = "";
    return strerror_r(error_number, buffer, sizeof buffer);
}

LogFile::~LogFile() {
    close();
}

int LogFile::create(const char* path, std::uint64_t limit, LogStorage storage, unsigned mode) {
    const threads::NoCancellation no_cancellation;
    const int descriptor =
        open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, static_cast<mode_t>(mode));
    if (descriptor < 0) {
        return errno;
    }
    file_ = OwnDescriptor(descriptor);
    open_ = true;
    limit_ = limit == 0 ? std::numeric_limits<std::uint64_t>::max() : limit;
    chunk_ = first_chunk;
    mapped_mode_ = storage == LogStorage::automatic && can_be_mapped(file_.number());
    if (!mapped_mode_ && storage != LogStorage::write_only) {
        behind_ = WriteBehind::start(file_, 0);
    }
    return 0;
}

std::uint64_t LogFile::size_limit() const {
    constexpr std::uint64_t max_offset = std::numeric_limits<off_t>::max();
    return std::min({limit_, file_size_limit(), max_offset, extent_end_});
}

void LogFile::report_size_limit() {
    const std::uint64_t process_limit = file_size_limit();
    why_full_ = process_limit < std::min(limit_, extent_end_)
                    ? "the event log reached the file size limit of the process (" +
                          std::to_string(process_limit) + " bytes, RLIMIT_FSIZE)"
                    : "the event log reached its limit of " + std::to_string(limit_) +
                          " bytes (MEMLAB_LOG_LIMIT)";
}

void LogFile::report_errno(int error_number) {
    why_full_ = "the event log could not grow beyond " + std::to_string(size_) +
                " bytes: " + describe_errno(error_number);
}

void LogFile::report_closed_descriptor() {
    why_full_ = "the program closed the event log's file descriptor";
}

[[gnu::hot]] bool LogFile::append(const std::uint8_t* data, std::size_t size, std::size_t spare,
                                  std::uint64_t keep_from, unsigned events) {
    if (!open_ || size == 0) {
        return size == 0;
    }
    const std::uint64_t needed = size_ + size + spare;
    if (mapped_mode_ && needed > allocated_ && !grow_mapping(needed, keep_from)) {
        if (mapped_mode_ || !open_) {
            return false;
        }
    }
    if (!mapped_mode_) {
        if (needed > size_limit()) {
            report_size_limit();
            return false;
        }
        return behind_ != nullptr ? write_behind(data, size, spare, events)
                                  : write_at_end(data, size);
    }
    std::uint8_t* const target = window_ + (size_ - window_start_);
    std::memcpy(target + 1, data + 1, size - 1);
    next_.store(target, std::memory_order_relaxed);
    commit_in_place(data[0], size);
    return true;
}

bool LogFile::write_behind(const std::uint8_t* data, std::size_t size, std::size_t spare,
                           unsigned events) {
    switch (behind_->append(data, size, spare, events)) {
        case WriteBehind::Outcome::appended:
            size_ += size;
            return true;
        case WriteBehind::Outcome::full:
            why_full_ = "the event log's file system did not keep up: " +
                        std::to_string(WriteBehind::capacity >> 20) +
                        " MiB waited to be written (set MEMLAB_OUTPUT to a local folder)";
            return false;
        case WriteBehind::Outcome::failed:
            break;
    }
    const WriteBehind::Failure failure = behind_->give_up();
    size_ = failure.size;
    extent_end_ = failure.end;
    lost_events_ = failure.lost_events;
    if (failure.error_number == 0) {
        report_closed_descriptor();
    } else {
        report_errno(failure.error_number);
    }
    return false;
}

[[gnu::hot]] void LogFile::prefetch_append() const noexcept {
    prefetch_to_write<64>(&next_);  // and the fields behind it
    prefetch_to_write<64>(next_.load(std::memory_order_relaxed));
}

/// False when the file is full, or after a fallback that cleared mapped_mode_.
bool LogFile::grow_mapping(std::uint64_t needed, std::uint64_t keep_from) {
    const threads::NoCancellation no_cancellation;
    const std::uint64_t cap = size_limit();
    if (needed > cap) {
        report_size_limit();
        return false;
    }
    if (!file_.check()) {
        report_closed_descriptor();
        return false;
    }
    const int descriptor = file_.number();
    const std::uint64_t preferred =
        std::min(cap, page_ceiling(std::max(needed, allocated_ + chunk_)));
    const std::uint64_t minimum = std::min(cap, page_ceiling(needed));
    std::uint64_t target = preferred;
    const auto allocate_to = [&](std::uint64_t end) {
        const std::uint64_t from = std::max(allocated_, file_end_);
        return from < end ? allocate(descriptor, from, end) : 0;
    };
    int error = allocate_to(target);
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
        target = minimum;
        error = allocate_to(target);
    }
    if (error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO) {
        report_errno(error);
        return false;
    }
    if (error != 0 && extent_start_ != 0) {
        report_errno(error);
        return false;
    }
    if (error != 0) {  // fallocate() is not supported
        fall_back_to_write();
        return false;
    }
    const bool written_before = allocated_ < file_end_;
    // Also brings the range into the page cache. The first store to a page through a mapping costs
    // 3 us (ext4), within the recording of an event; written in bulk, a page costs 0.1 us. Failure
    // only means page faults later, unless there was something else before.
    if (!write_zeros(descriptor, allocated_, target) && written_before) {
        report_errno(errno);  // what was there before would follow the data
        return false;
    }
    allocated_ = target;
    file_end_ = std::max(file_end_, target);
    chunk_ = std::min(chunk_ * 2, max_chunk);
    if (!map(keep_from)) {
        if (extent_start_ != 0) {  // only an append-only file can be written without a mapping
            report_errno(ENOMEM);
            open_ = false;
            return false;
        }
        fall_back_to_write();
        return false;
    }
    return true;
}

void LogFile::move_to(const Extent& extent) {
    const bool back = extent.prepared > extent.offset || extent.offset % page_size != 0;
    extent_start_ = page_floor(extent.offset);
    size_ = extent.offset;
    mapped_until_ = 0;
    allocated_ = extent.prepared;
    extent_end_ = extent.end;
    if (mapped_mode_) {
        const threads::NoCancellation no_cancellation;
        unmap();
        if (back) {
            open_ = map(size_);
        }
    } else if (behind_ != nullptr) {
        behind_->move_to(extent.offset, extent.end);
    }
}

bool LogFile::has_room_for(std::size_t size) const {
    return behind_ == nullptr || behind_->has_room_for(size);
}

bool LogFile::map(std::uint64_t keep_from) {
    unmap();
    window_start_ = page_floor(keep_from);
    const std::uint64_t size = allocated_ - window_start_;
    void* const window = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.number(),
                              static_cast<off_t>(window_start_));
    if (window == MAP_FAILED) {
        return false;
    }
    window_ = static_cast<std::uint8_t*>(window);
    window_end_ = window_ + size;
    return madvise(window_, size, MADV_DONTFORK) == 0;
}

void LogFile::unmap() {
    if (window_ != nullptr) {
        munmap(window_, static_cast<std::size_t>(window_end_ - window_));
        window_ = nullptr;
        next_.store(nullptr, std::memory_order_relaxed);
    }
}

/// With write(2) a kill may truncate a record anywhere. It must then be at the end of the file, not
/// followed by preallocated zeros, which would decode.
void LogFile::fall_back_to_write() {
    unmap();
    mapped_mode_ = false;
    if (ftruncate(file_.number(), static_cast<off_t>(size_)) != 0) {
        report_errno(errno);
        open_ = false;
        return;
    }
    allocated_ = size_;
    mapped_until_ = size_;
    behind_ = WriteBehind::start(file_, size_);
}

bool LogFile::write_at_end(const std::uint8_t* data, std::size_t size) {
    const threads::NoCancellation no_cancellation;
    if (!file_.check()) {
        report_closed_descriptor();
        open_ = false;
        return false;
    }
    std::size_t done = 0;
    while (done < size) {
        const ssize_t written =
            pwrite(file_.number(), data + done, size - done, static_cast<off_t>(size_ + done));
        if (written > 0) {
            done += static_cast<std::size_t>(written);
        } else if (written == 0 || errno != EINTR) {
            report_errno(written == 0 ? ENOSPC : errno);
            if (ftruncate(file_.number(), static_cast<off_t>(size_)) != 0) {
                // The partial record stays: readers see a log that ends inside a record.
                open_ = false;
            }
            return false;
        }
    }
    size_ += size;
    return true;
}

void LogFile::patch(std::uint64_t offset, const std::uint8_t* data, std::size_t size,
                    std::size_t last) {
    if (!open_) {
        return;
    }
    if (mapped_mode_) {
        std::uint8_t* const target = window_ + (offset - window_start_);
        if (last == size) {
            store_number(target, data, size);
            return;
        }
        for (std::size_t i = 0; i < size; ++i) {
            if (i != last) {
                target[i] = data[i];
            }
        }
        store_release(target + last, data[last]);
        return;
    }
    if (offset + size > file_size_limit()) {
        return;  // the limit was lowered: the block stays unsealed, which is readable
    }
    const threads::NoCancellation no_cancellation;
    if (behind_ != nullptr) {
        behind_->patch(offset, data, size, last);
    } else if (file_.check()) {
        write_over(file_.number(), offset, data, size, last);
    }
}

std::optional<std::uint32_t> LogFile::checksum(std::uint64_t offset, std::size_t size) const {
    if (!open_) {
        return {};
    }
    if (mapped_mode_) {
        return crc32c(0, window_ + (offset - window_start_), size);
    }
    std::uint32_t sum = 0;
    if (behind_ == nullptr) {
        return add_checksum(offset, size, &sum) ? std::optional(sum) : std::nullopt;
    }
    const std::size_t before =
        offset < mapped_until_ ? std::min<std::uint64_t>(size, mapped_until_ - offset) : 0;
    return add_checksum(offset, before, &sum) &&
                   behind_->add_checksum(offset + before, size - before, &sum)
               ? std::optional(sum)
               : std::nullopt;
}

/// Of what is in the file.
bool LogFile::add_checksum(std::uint64_t offset, std::size_t size, std::uint32_t* sum) const {
    const threads::NoCancellation no_cancellation;
    std::array<std::uint8_t, 1024> part;
    while (size > 0) {
        const ssize_t got = pread(file_.number(), part.data(), std::min(size, part.size()),
                                  static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        const auto count = static_cast<std::size_t>(got);
        *sum = crc32c(*sum, part.data(), count);
        offset += count;
        size -= count;
    }
    return true;
}

void LogFile::close() {
    constexpr std::uint64_t timeout_ns = 5'000'000'000;
    const threads::NoCancellation no_cancellation;
    unmap();
    open_ = false;
    if (behind_ != nullptr) {
        close_error_ = WriteBehind::finish(behind_, timeout_ns);
        behind_ = nullptr;
        file_ = OwnDescriptor();
        return;
    }
    // In a ring there may be other data behind this.
    if (allocated_ > size_ && allocated_ >= file_end_ && file_.check() &&
        ftruncate(file_.number(), static_cast<off_t>(size_)) != 0) {
        // The zeros after the end stay: readers stop at them.
    }
    close_error_ = file_.close();
}

std::string LogFile::why_incomplete() const {
    if (close_error_ == 0) {
        return {};
    }
    return "the end of the event log may be missing: " +
           (close_error_ == ETIMEDOUT ? std::string("its file system does not answer")
                                      : describe_errno(close_error_));
}

void LogFile::abandon() {
    window_ = nullptr;
    next_.store(nullptr, std::memory_order_relaxed);
    behind_ = nullptr;  // the child has neither the thread nor the memory (MADV_DONTFORK)
    open_ = false;
    file_.close();
}

}  // namespace memlab::trace
