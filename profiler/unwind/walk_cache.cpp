#include "profiler/unwind/walk_cache.hpp"

#include <algorithm>

namespace memlab::profiler::unwind {

constinit std::array<WalkCache::Place, std::size_t{1} << WalkCache::place_bits> WalkCache::places{};

const WalkCache::Frame WalkCache::nothing{UINTPTR_MAX, 0, Rule()};

[[gnu::hot]] WalkCache::WalkCache(std::uint64_t epoch, std::uintptr_t sp)
    : epoch_(epoch), set_(spread<set_bits>(sp >> 4)) {
    if (epoch == 0) {
        return;
    }
    const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
    Place& place = places[spread<place_bits>(thread)];
    if (place.taken.exchange(true, std::memory_order_acquire)) {
        return;
    }
    place_ = &place;
    const Set& set = place.walks[set_];
    way_ = place.recent_of(set_);
    const Frame* const way = set.walks[way_].data();
    constexpr std::size_t usual_depth = 40;
    for (std::size_t i = 0; i < usual_depth; i += 64 / sizeof(Frame)) {
        __builtin_prefetch(way + i);
    }
    if (set.epochs[way_] == epoch) {
        same_way_ = way;
    }
    if (place.last_epoch == epoch) {
        last_ = place.last;
    }
}

// A walk of the same beginning has gone through as many frames when it comes to this one.
[[gnu::hot]] const WalkCache::Frame* WalkCache::other_way(std::uintptr_t sp,
                                                          std::uintptr_t address) {
    if (place_ == nullptr) {
        return nullptr;
    }
    const Set& set = place_->walks[set_];
    for (std::size_t way = 0; way < set_size; ++way) {
        if (set.epochs[way] == epoch_ && frames_ < set.sizes[way] &&
            is_at(set.walks[way][frames_], sp, address)) {
            way_ = way;
            same_way_ = &set.walks[way][frames_];
            return same_way_;
        }
    }
    left_ = true;
    return nullptr;
}

void WalkCache::went_elsewhere(const Frame& frame) {
    learn();
    if (learning_ == Learning::writing) {
        append(&frame, &frame + 1);
    }
    ++frames_;
}

[[gnu::hot]] void WalkCache::went_another_part(const Frame* end) {
    if (parts_ == max_parts) {
        learn();
    }
    if (learning_ == Learning::writing) {
        append(same_way_, end);
    } else if (learning_ == Learning::nothing_yet && parts_ != max_parts) {
        part_[parts_++] = {same_way_, end};
    }
}

void WalkCache::append(const Frame* begin, const Frame* end) {
    const std::ptrdiff_t room = &place_->present.back() - next_;
    next_ = std::copy_n(begin, std::min(end - begin, room), next_);
}

void WalkCache::learn() {
    // Of a deep stack the inner frames are kept.
    if (learning_ != Learning::nothing_yet || place_ == nullptr || frames_ >= max_frames) {
        return;
    }
    const Set& set = place_->walks[set_];
    while (room_ < set_size && set.epochs[room_] == epoch_) {
        ++room_;
    }
    if (room_ == set_size) {
        // Where more ways lead to one place than are kept, most walks would displace what the next
        // one needs. So only now and then one does.
        constexpr std::uint32_t patience = 4;
        const std::uint32_t number = ++place_->crowded;
        if (number % patience != 0) {
            learning_ = Learning::never;
            parts_ = 0;
            return;
        }
        room_ = number / patience % set_size;
    }
    learning_ = Learning::writing;
    next_ = place_->present.data();
    for (std::size_t i = 0; i < parts_; ++i) {
        append(part_[i].begin, part_[i].end);
    }
    parts_ = 0;
}

[[gnu::hot]] void WalkCache::keep() {
    if (learning_ == Learning::writing) {
        Set& set = place_->walks[set_];
        *next_ = nothing;
        Frame* const begin = place_->present.data();
        way_ = room_;
        set.epochs[way_] = epoch_;
        set.sizes[way_] = static_cast<std::uint32_t>(next_ - begin);
        std::copy(begin, next_ + 1, set.walks[way_].data());
    } else if (parts_ == 0) {
        return;
    }
    place_->set_recent(set_, way_);
    place_->last = place_->walks[set_].walks[way_].data();
    place_->last_epoch = epoch_;
}

}  // namespace memlab::profiler::unwind
