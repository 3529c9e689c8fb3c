#include "profiler/unwind/earlier_walks.hpp"

#include <algorithm>

namespace memlab::profiler::unwind {

constinit std::array<EarlierWalks::Place, std::size_t{1} << EarlierWalks::place_bits>
    EarlierWalks::places{};

const EarlierWalks::Frame EarlierWalks::nothing{UINTPTR_MAX, 0, Rule()};

[[gnu::hot]] EarlierWalks::EarlierWalks(std::uint64_t epoch, std::uintptr_t sp)
    : epoch_(epoch), way_(static_cast<std::uint32_t>(spread<walk_bits>(sp >> 4))) {
    if (epoch == 0) {
        return;
    }
    const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
    Place& place = places[spread<place_bits>(thread)];
    if (place.taken.exchange(true, std::memory_order_acquire)) {
        return;
    }
    place_ = &place;
    const auto expect = [&](const Walk& walk) {
        return walk.epoch == epoch ? walk.frames.data() : &nothing;
    };
    const Walk& same_way = place.walks[way_];
    constexpr std::size_t usual_depth = 40;
    for (std::size_t i = 0; i < usual_depth; i += 64 / sizeof(Frame)) {
        __builtin_prefetch(&same_way.frames[i]);
    }
    begin_ = same_way_ = alike_ = expect(same_way);
    last_ = expect(place.walks[place.last]);
    next_ = place.present.data();
    end_ = &place.present.back();
}

void EarlierWalks::append(const Frame* begin, const Frame* end) {
    const std::ptrdiff_t count = std::min(end - begin, end_ - next_);
    next_ = std::copy_n(begin, count, next_);
}

[[gnu::hot]] void EarlierWalks::keep() {
    if (place_ == nullptr) {
        return;
    }
    Walk& walk = place_->walks[way_];
    const bool as_it_was = alike_ != nullptr && alike_->sp == UINTPTR_MAX && walk.epoch == epoch_;
    if (!as_it_was) {
        write_down();
        *next_ = nothing;
        walk.epoch = epoch_;
        std::copy(place_->present.data(), next_ + 1, walk.frames.data());
    }
    place_->last = way_;
}

}  // namespace memlab::profiler::unwind
