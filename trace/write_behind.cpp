#include "trace/write_behind.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <limits>
#include <new>

#include "threads/own_thread.hpp"
#include "trace/crc32c.hpp"

namespace memlab::trace {
namespace {

/// How long the thread waits for more data before it writes.
constexpr std::uint64_t batch_delay_ns = 2'000'000;

timespec deadline(std::uint64_t nanoseconds) {
    constexpr std::uint64_t second = 1'000'000'000;
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    const std::uint64_t end = static_cast<std::uint64_t>(time.tv_nsec) + nanoseconds;
    return {time.tv_sec + static_cast<time_t>(end / second), static_cast<long>(end % second)};
}

}  // namespace

bool write_all(int descriptor, const std::uint8_t* data, std::size_t size, std::uint64_t offset) {
    while (size > 0) {
        const ssize_t written = pwrite(descriptor, data, size, static_cast<off_t>(offset));
        if (written > 0) {
            data += written;
            size -= static_cast<std::size_t>(written);
            offset += static_cast<std::uint64_t>(written);
        } else if (written == 0 || errno != EINTR) {
            errno = written == 0 ? ENOSPC : errno;
            return false;
        }
    }
    return true;
}

bool write_zeros(int descriptor, std::uint64_t from, std::uint64_t to) {
    // Not const: the library's file would hold them.
    static constinit std::array<std::uint8_t, 65536> zeros{};
    while (from < to) {
        const std::size_t size = std::min<std::uint64_t>(to - from, zeros.size());
        if (!write_all(descriptor, zeros.data(), size, from)) {
            return false;
        }
        from += size;
    }
    return true;
}

void write_over(int descriptor, std::uint64_t offset, const std::uint8_t* data, std::size_t size,
                std::size_t last) {
    const auto put = [&](std::size_t from, std::size_t to) {
        return from == to ||
               pwrite(descriptor, data + from, to - from, static_cast<off_t>(offset + from)) ==
                   static_cast<ssize_t>(to - from);
    };
    if (last == size) {
        (void)put(0, size);
    } else if (put(0, last) && put(last + 1, size)) {
        (void)put(last, last + 1);
    }
}

WriteBehind::WriteBehind(const OwnDescriptor& file, std::uint64_t size)
    : file_(file), appended_(size), written_(size), writing_(size) {
    cut_points_[cut_point_count_++] = {size, 0, true};
    extents_[extent_count_++] = {size, size, std::numeric_limits<std::uint64_t>::max()};
    file_size_ = size;
}

WriteBehind* WriteBehind::start(const OwnDescriptor& file, std::uint64_t size) {
    static_assert(sizeof(WriteBehind) <= mapping_size - capacity);
    // One mapping for the ring and the object, not from the heap: finish() may not use the heap.
    void* const memory = mmap(nullptr, mapping_size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    madvise(memory, mapping_size, MADV_DONTFORK);
    auto* const self = new (static_cast<std::uint8_t*>(memory) + capacity) WriteBehind(file, size);
    self->ring_ = static_cast<std::uint8_t*>(memory);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self->changed_, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!threads::start_own_thread(&WriteBehind::run, self)) {
        munmap(memory, mapping_size);
        return nullptr;
    }
    return self;
}

WriteBehind::Outcome WriteBehind::append(const std::uint8_t* data, std::size_t size,
                                         std::size_t spare, unsigned events) {
    const threads::LockGuard lock(mutex_);
    if (failed_) {
        if (!given_up_ || tail_size_ + size > tail_.size()) {
            return Outcome::failed;
        }
        std::memcpy(tail_.data() + tail_size_, data, size);
        tail_size_ += size;
        tail_changed_ = true;
        pthread_cond_signal(&changed_);
        return Outcome::appended;
    }
    const std::uint64_t waiting = appended_ - written_;
    if (waiting + size + spare > capacity) {
        return Outcome::full;
    }
    const std::size_t begin = appended_ % capacity;
    const std::size_t first = std::min(size, capacity - begin);
    std::memcpy(ring_ + begin, data, first);
    std::memcpy(ring_, data + first, size - first);
    const Extent& extent = extents_[(extent_count_ - 1) % extents_.size()];
    const bool begins_extent = extent.is_moved() && appended_ == extent.begin;
    appended_ += size;
    appended_events_ += events;
    if (begins_extent) {
        add_cut_point(true);
    } else if (appended_ - cut_points_[(cut_point_count_ - 1) % cut_points_.size()].offset >=
               cut_point_distance) {
        add_cut_point(false);
    }
    if (idle_ || (waiting <= capacity / 2 && waiting + size > capacity / 2)) {
        idle_ = false;
        pthread_cond_signal(&changed_);
    }
    return Outcome::appended;
}

void WriteBehind::add_cut_point(bool ends_block) {
    CutPoint& latest = cut_points_[(cut_point_count_ - 1) % cut_points_.size()];
    if (latest.offset == appended_) {
        latest.ends_block = latest.ends_block || ends_block;
        return;
    }
    cut_points_[cut_point_count_++ % cut_points_.size()] = {appended_, appended_events_,
                                                            ends_block};
}

void WriteBehind::move_to(std::uint64_t offset, std::uint64_t end) {
    const threads::LockGuard lock(mutex_);
    add_cut_point(true);
    extents_[extent_count_++ % extents_.size()] = {appended_, offset, end};
}

bool WriteBehind::has_room_for(std::size_t size) {
    const threads::LockGuard lock(mutex_);
    return failed_ || appended_ - written_ + size <= capacity / 2;
}

/// The extent that the byte at `offset` of the stream is in.
const WriteBehind::Extent& WriteBehind::extent_of(std::uint64_t offset) const {
    const std::size_t oldest =
        extent_count_ < extents_.size() ? 0 : extent_count_ - extents_.size();
    std::size_t at = extent_count_ - 1;
    while (at > oldest && extents_[at % extents_.size()].begin > offset) {
        --at;
    }
    return extents_[at % extents_.size()];
}

/// Where the next extent begins in the stream; or the end of what is appended.
std::uint64_t WriteBehind::end_of_extent(std::uint64_t offset) const {
    std::uint64_t end = appended_;
    for (std::size_t back = 1; back <= std::min(extent_count_, extents_.size()); ++back) {
        const std::uint64_t next = extents_[(extent_count_ - back) % extents_.size()].begin;
        end = next > offset ? std::min(end, next) : end;
    }
    return end;
}

/// The extent that everything up to `offset` of the stream ends in: not one that begins there.
const WriteBehind::Extent& WriteBehind::extent_that_ends(std::uint64_t offset) const {
    return extent_of(offset == 0 ? 0 : offset - 1);
}

std::uint64_t WriteBehind::file_offset(std::uint64_t offset) const {
    const Extent& extent = extent_of(offset);
    return extent.offset + (offset - extent.begin);
}

/// Of an offset in the file, in the latest extent.
std::uint64_t WriteBehind::stream_offset(std::uint64_t file_offset) const {
    const Extent& extent = extents_[(extent_count_ - 1) % extents_.size()];
    return extent.begin + (file_offset - extent.offset);
}

void WriteBehind::patch(std::uint64_t at_offset, const std::uint8_t* data, std::size_t size,
                        std::size_t last) {
    const threads::LockGuard lock(mutex_);
    if (failed_) {
        if (given_up_ && at_offset >= tail_offset_ &&
            at_offset - tail_offset_ + size <= tail_size_) {
            std::memcpy(tail_.data() + (at_offset - tail_offset_), data, size);
            tail_changed_ = true;
            pthread_cond_signal(&changed_);
        }
        return;
    }
    add_cut_point(true);
    const std::uint64_t offset = stream_offset(at_offset);
    if (offset >= writing_) {
        for (std::size_t i = 0; i < size; ++i) {
            ring_[(offset + i) % capacity] = data[i];
        }
        return;
    }
    Patch patch{};
    if (patch_count_ == patches_.size() || size > patch.bytes.size()) {
        return;  // the block stays unsealed, which is readable
    }
    patch.offset = offset;
    patch.to = at_offset;
    patch.size = static_cast<std::uint8_t>(size);
    patch.last = static_cast<std::uint8_t>(last);
    std::memcpy(patch.bytes.data(), data, size);
    patches_[patch_count_++] = patch;
    if (idle_) {
        idle_ = false;
        pthread_cond_signal(&changed_);
    }
}

bool WriteBehind::add_checksum(std::uint64_t offset, std::size_t size, std::uint32_t* sum) const {
    if (size > capacity) {
        return false;
    }
    const std::size_t begin = stream_offset(offset) % capacity;
    const std::size_t first = std::min(size, capacity - begin);
    *sum = crc32c(crc32c(*sum, ring_ + begin, first), ring_, size - first);
    return true;
}

int WriteBehind::finish(WriteBehind* self, std::uint64_t timeout_ns) {
    const timespec until = deadline(timeout_ns);
    self->mutex_.lock();
    self->finishing_ = true;
    self->idle_ = false;
    pthread_cond_broadcast(&self->changed_);
    while (!self->finished_) {
        if (pthread_cond_timedwait(&self->changed_, self->mutex_.native_handle(), &until) ==
            ETIMEDOUT) {
            break;
        }
    }
    const bool finished = self->finished_;
    int error = self->close_error_ != 0 ? self->close_error_ : self->tail_error_;
    if (error == 0 && self->failed_ && !self->given_up_) {
        // The last bytes failed, after which there was no append() to report it.
        error = self->error_number_ != 0 ? self->error_number_ : EBADF;
    }
    self->mutex_.unlock();
    if (!finished) {
        return ETIMEDOUT;
    }
    pthread_cond_destroy(&self->changed_);
    munmap(self->ring_, mapping_size);
    return error;
}

void* WriteBehind::run(void* self) {
    static_cast<WriteBehind*>(self)->loop();
    return nullptr;
}

/// Whether all that was appended is written.
bool WriteBehind::is_done() const {
    return failed_ ? !tail_changed_ : appended_ == written_ && patch_count_ == 0;
}

void WriteBehind::loop() {
    bool more = true;
    while (more) {
        mutex_.lock();
        while (!finishing_ && is_done()) {
            idle_ = true;
            pthread_cond_wait(&changed_, mutex_.native_handle());
        }
        idle_ = false;
        if (!finishing_ && !failed_ && appended_ - written_ <= capacity / 2) {
            const timespec until = deadline(batch_delay_ns);
            pthread_cond_timedwait(&changed_, mutex_.native_handle(), &until);
        }
        const bool failed = failed_;
        mutex_.unlock();
        if (failed) {
            write_tail();
        } else if (!drain()) {
            cut_back();
        }
        mutex_.lock();
        more = !finishing_ || !is_done();
        mutex_.unlock();
    }
    const int error = file_.close();
    mutex_.lock();
    close_error_ = error;
    finished_ = true;
    pthread_cond_broadcast(&changed_);
    mutex_.unlock();
}

/// Writes everything appended so far, and the patches. False when a write failed.
bool WriteBehind::drain() {
    Patches patches;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t events = 0;
    {
        const threads::LockGuard lock(mutex_);
        begin = written_;
        end = writing_ = appended_;
        events = appended_events_;
        patches.count = patch_count_;
        std::copy_n(patches_.begin(), patch_count_, patches.each.begin());
        patch_count_ = 0;
    }
    if (!file_.check()) {
        errno = 0;
        return false;
    }
    if (!write_range(begin, end, patches)) {
        return false;
    }
    apply(patches, end);
    const threads::LockGuard lock(mutex_);
    written_ = end;
    written_events_ = events;
    return true;
}

/// Those of what is before `end` in the stream: it is written, and what is behind may soon be in
/// the same place of the file.
void WriteBehind::apply(Patches& patches, std::uint64_t end) {
    for (; patches.done < patches.count && patches.each[patches.done].offset < end;
         ++patches.done) {
        const Patch& patch = patches.each[patches.done];
        write_over(file_.number(), patch.to, patch.bytes.data(), patch.size, patch.last);
    }
}

bool WriteBehind::write_range(std::uint64_t begin, std::uint64_t end, Patches& patches) {
    for (std::uint64_t offset = begin; offset < end;) {
        Extent extent;
        std::uint64_t next_extent = end;
        {
            const threads::LockGuard lock(mutex_);
            extent = extent_of(offset);
            next_extent = std::min(end, end_of_extent(offset));
        }
        apply(patches, extent.begin);
        if (!write_in_extent(extent, offset, next_extent)) {
            return false;
        }
        offset = next_extent;
    }
    return true;
}

/// Behind move_to() the file's size does not tell a reader what was written, and a piece may end
/// inside a record: the first byte, of a record, is written when all others are there.
bool WriteBehind::write_in_extent(const Extent& extent, std::uint64_t begin, std::uint64_t end) {
    constexpr std::uint64_t max_piece = std::uint64_t{256} << 10;
    const bool moved = extent.is_moved();
    const std::uint64_t in_file = extent.offset - extent.begin;  // modulo 2^64
    withheld_ = moved ? begin : nothing_withheld;
    for (std::uint64_t offset = begin; offset < end;) {
        const std::size_t size =
            std::min({end - offset, capacity - offset % capacity, moved ? max_piece : capacity});
        const std::size_t skip = offset == withheld_ ? 1 : 0;
        tried_ = offset + size;
        if ((moved && !clear_ahead(extent, in_file + offset + size)) ||
            !write_all(file_.number(), at(offset) + skip, size - skip, in_file + offset + skip)) {
            return false;
        }
        file_size_ = std::max(file_size_, in_file + offset + size);
        offset += size;
        progress_ = offset;
    }
    return !moved || write_withheld(in_file + begin);
}

/// `to`: its place in the file.
bool WriteBehind::write_withheld(std::uint64_t to) {
    if (!write_all(file_.number(), at(withheld_), 1, to)) {
        return false;
    }
    withheld_ = nothing_withheld;
    return true;
}

/// Puts zeros where data up to `end` and some behind it will be, if other data is there.
bool WriteBehind::clear_ahead(const Extent& extent, std::uint64_t end) {
    constexpr std::uint64_t step = 65536;
    constexpr std::uint64_t behind = 4096;
    if (clearing_ != extent.offset) {
        clearing_ = cleared_ = extent.offset;
        stale_end_ = std::min(extent.end, file_size_);
    }
    overwrites_ = stale_end_ > clearing_;
    while (cleared_ < std::min(end + behind, stale_end_)) {
        const std::uint64_t next = std::min(cleared_ + step, stale_end_);
        if (!write_zeros(file_.number(), cleared_, next)) {
            return false;
        }
        cleared_ = next;
    }
    return true;
}

}  // namespace memlab::trace
