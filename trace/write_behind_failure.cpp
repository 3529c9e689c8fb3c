// What a writer thread leaves of a log after a failed write: whole records, behind which the
// records that close the log find space; and nothing is lost of the lap before that makes up for
// them.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "trace/write_behind.hpp"

namespace memlab::trace {

WriteBehind::Failure WriteBehind::give_up() {
    const threads::LockGuard lock(mutex_);
    given_up_ = true;
    return {error_number_, tail_offset_, tail_end_, appended_events_ - written_events_};
}

/// After a failed write: cuts the file at a cut point. A partial record stays where that fails,
/// too: readers see a log that ends inside it.
void WriteBehind::cut_back() {
    const int error = errno;
    struct stat status {};
    CutPoint end;
    bool can_go_on = file_.check() && fstat(file_.number(), &status) == 0;
    if (can_go_on) {
        Extent extent;
        {
            const threads::LockGuard lock(mutex_);
            end = find_cut(static_cast<std::uint64_t>(status.st_size));
            extent = extent_that_ends(end.offset);
        }
        can_go_on = extent.is_moved()
                        ? clear_from(extent, end.offset)
                        : ftruncate(file_.number(), static_cast<off_t>(end.offset)) == 0;
    }
    if (!can_go_on) {
        file_.close();
    }
    const threads::LockGuard lock(mutex_);
    if (!can_go_on) {
        end = {written_, written_events_, false};
    }
    const Extent& extent = extent_that_ends(end.offset);
    tail_offset_ = extent.offset + (end.offset - extent.begin);
    tail_end_ = extent.end;
    written_ = end.offset;
    written_events_ = end.events;
    error_number_ = error;
    failed_ = true;
}

/// The latest cut point up to which everything is in the file of `size` bytes, with space for the
/// closing records, which is allocated. In the first extent the end of the file follows, and what
/// is sealed may be cut, if the closing records do not fill it up. Behind move_to() zeros follow:
/// only where a block ends. There nothing is cut before an extent in which older data was
/// overwritten: what was written before that, a checkpoint, may be what makes up for that data.
WriteBehind::CutPoint WriteBehind::find_cut(std::uint64_t size) const {
    CutPoint best = {written_, written_events_, false};
    bool found = false;
    const std::uint64_t kept = overwrites_ ? extent_of(progress_).begin : 0;
    std::uint64_t block_end = std::numeric_limits<std::uint64_t>::max();
    const std::size_t count = std::min(cut_point_count_, cut_points_.size());
    for (std::size_t back = 1; back <= count && !found; ++back) {
        const CutPoint& candidate = cut_points_[(cut_point_count_ - back) % cut_points_.size()];
        const Extent& extent = extent_that_ends(candidate.offset);
        const std::uint64_t space = candidate.offset + tail_capacity;
        if (!extent.is_moved()) {
            found = candidate.offset != 0 && space <= size &&
                    (candidate.ends_block || space <= block_end);
        } else if (candidate.ends_block && candidate.offset <= progress_) {
            const std::uint64_t in_file = extent.offset + (candidate.offset - extent.begin);
            found =
                space <= progress_ || in_file + tail_capacity <= size || candidate.offset == kept;
        }
        best = found ? candidate : best;
        block_end = candidate.ends_block ? candidate.offset : block_end;
    }
    return best;
}

/// Puts zeros over what may have been written behind `extent`'s part up to `offset` of the stream.
/// False: it may still be there, except what was withheld.
bool WriteBehind::clear_from(const Extent& extent, std::uint64_t offset) {
    std::array<Extent, std::tuple_size_v<decltype(extents_)>> extents;
    std::size_t count = 0;
    std::uint64_t withheld_at = 0;
    std::uint64_t end = 0;
    {
        const threads::LockGuard lock(mutex_);
        extents = extents_;
        count = std::min(extent_count_, extents.size());
        end = std::min(tried_, end_of_extent(offset == 0 ? 0 : offset - 1));
        withheld_at = withheld_ < offset ? file_offset(withheld_) : 0;
    }
    // First what was begun later: its first bytes say that it is there. What was not begun in the
    // file is what was recorded a lap before.
    for (std::size_t i = 0; i < count; ++i) {
        if (extents[i].begin >= offset && extents[i].begin < tried_ &&
            !write_zeros(file_.number(), extents[i].offset, extents[i].offset + 64)) {
            return false;
        }
    }
    const std::uint64_t in_file = extent.offset - extent.begin;  // modulo 2^64
    return (offset >= end || write_zeros(file_.number(), in_file + offset, in_file + end)) &&
           (withheld_at == 0 || write_withheld(withheld_at));
}

void WriteBehind::write_tail() {
    std::array<std::uint8_t, tail_capacity> bytes;
    std::size_t size = 0;
    std::uint64_t offset = 0;
    {
        const threads::LockGuard lock(mutex_);
        offset = tail_offset_;
        bytes = tail_;
        size = tail_size_;
        tail_changed_ = false;
    }
    const bool is_open = file_.check();
    const bool written = is_open && write_all(file_.number(), bytes.data(), size, offset);
    const int error = errno;
    const threads::LockGuard lock(mutex_);
    tail_error_ = written ? 0 : is_open ? error : error_number_ != 0 ? error_number_ : EBADF;
}

}  // namespace memlab::trace
