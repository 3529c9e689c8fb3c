#include "profiler/unwind/last_walk.hpp"

namespace memlab::profiler::unwind {

constinit std::array<LastWalk::Place, std::size_t{1} << LastWalk::place_bits> LastWalk::places{};

const LastWalk::Frame LastWalk::nothing{UINTPTR_MAX, 0, Rule()};

LastWalk::Place& LastWalk::place_of_thread() {
    const auto block = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
    return places[block * 0x9e3779b97f4a7c15U >> (64 - place_bits)];
}

LastWalk::LastWalk(std::uint64_t epoch) : epoch_(epoch) {
    if (epoch == 0) {
        return;
    }
    Place& place = place_of_thread();
    if (place.taken.exchange(true, std::memory_order_acquire)) {
        return;
    }
    place_ = &place;
    if (place.epoch == epoch) {
        expected_ = place.walks[place.second ? 1 : 0].data();
    }
    Frames& into = place.walks[place.second ? 0 : 1];
    next_ = into.data();
    last_ = &into.back();
}

void LastWalk::keep() {
    if (place_ != nullptr) {
        *next_ = nothing;
        place_->second = !place_->second;
        place_->epoch = epoch_;
    }
}

}  // namespace memlab::profiler::unwind
