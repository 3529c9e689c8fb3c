#include "profiler/unwind/walk_cache.hpp"

#include <algorithm>

namespace memlab::profiler::unwind {

constinit std::array<WalkCache::Slot, std::size_t{1} << WalkCache::slot_bits> WalkCache::slots{};

const WalkCache::Frame WalkCache::sentinel{UINTPTR_MAX, 0, Rule()};

[[gnu::hot]] WalkCache::WalkCache(std::uint64_t epoch, std::uintptr_t sp)
    : epoch_(epoch), set_(hash<set_bits>(sp >> 4)) {
    if (epoch == 0) {
        return;
    }
    const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
    Slot& slot = slots[hash<slot_bits>(thread)];
    if (slot.in_use.exchange(true, std::memory_order_acquire)) {
        return;
    }
    slot_ = &slot;
    const Set& set = slot.walks[set_];
    way_ = slot.recent_way(set_);
    const Frame* const walk = set.walks[way_].data();
    constexpr std::size_t usual_depth = 40;
    for (std::size_t i = 0; i < usual_depth; i += 64 / sizeof(Frame)) {
        __builtin_prefetch(walk + i);
    }
    if (set.epochs[way_] == epoch) {
        match_ = walk;
    }
    if (slot.last_epoch == epoch) {
        last_ = slot.last;
    }
}

// Walks with a common beginning have the same frame at the same index.
[[gnu::hot]] const WalkCache::Frame* WalkCache::match_other_walk(std::uintptr_t sp,
                                                                 std::uintptr_t address) {
    if (slot_ == nullptr) {
        return nullptr;
    }
    const Set& set = slot_->walks[set_];
    for (std::size_t way = 0; way < ways; ++way) {
        if (set.epochs[way] == epoch_ && frame_count_ < set.sizes[way] &&
            is_at(set.walks[way][frame_count_], sp, address)) {
            way_ = way;
            match_ = &set.walks[way][frame_count_];
            return match_;
        }
    }
    diverged_ = true;
    return nullptr;
}

void WalkCache::append_unmatched(const Frame& frame) {
    begin_insert();
    if (insertion_ == Insertion::recording) {
        record(&frame, &frame + 1);
    }
    ++frame_count_;
}

[[gnu::hot]] void WalkCache::append_range(const Frame* end) {
    if (range_count_ == max_ranges) {
        begin_insert();
    }
    if (insertion_ == Insertion::recording) {
        record(match_, end);
    } else if (insertion_ == Insertion::undecided && range_count_ != max_ranges) {
        ranges_[range_count_++] = {match_, end};
    }
}

void WalkCache::record(const Frame* begin, const Frame* end) {
    const std::ptrdiff_t space = &slot_->pending.back() - next_;
    next_ = std::copy_n(begin, std::min(end - begin, space), next_);
}

void WalkCache::begin_insert() {
    // Only the first max_frames frames of a deep stack are cached.
    if (insertion_ != Insertion::undecided || slot_ == nullptr || frame_count_ >= max_frames) {
        return;
    }
    const Set& set = slot_->walks[set_];
    while (victim_ < ways && set.epochs[victim_] == epoch_) {
        ++victim_;
    }
    if (victim_ == ways) {
        // With more paths per set than ways, replacing on every miss would evict what the next walk
        // needs. So only every fourth miss replaces.
        constexpr std::uint32_t replace_interval = 4;
        const std::uint32_t overflow = ++slot_->set_overflows;
        if (overflow % replace_interval != 0) {
            insertion_ = Insertion::skipped;
            range_count_ = 0;
            return;
        }
        victim_ = overflow / replace_interval % ways;
    }
    insertion_ = Insertion::recording;
    next_ = slot_->pending.data();
    for (std::size_t i = 0; i < range_count_; ++i) {
        record(ranges_[i].begin, ranges_[i].end);
    }
    range_count_ = 0;
}

[[gnu::hot]] void WalkCache::commit() {
    if (insertion_ == Insertion::recording) {
        Set& set = slot_->walks[set_];
        *next_ = sentinel;
        Frame* const begin = slot_->pending.data();
        way_ = victim_;
        set.epochs[way_] = epoch_;
        set.sizes[way_] = static_cast<std::uint32_t>(next_ - begin);
        std::copy(begin, next_ + 1, set.walks[way_].data());
    } else if (range_count_ == 0) {
        return;
    }
    slot_->set_recent_way(set_, way_);
    slot_->last = slot_->walks[set_].walks[way_].data();
    slot_->last_epoch = epoch_;
}

}  // namespace memlab::profiler::unwind
