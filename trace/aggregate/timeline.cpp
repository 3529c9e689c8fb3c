#include "trace/aggregate/timeline.hpp"

namespace memlab::trace {

template <std::size_t curves>
void TimelineOf<curves>::record_in_new_bucket(std::uint64_t time_ns, const Values& values) {
    if (buckets_.empty()) {
        start_ns_ = time_ns;
        buckets_.push_back({.min = values, .max = values, .last = values, .used = true});
    }
    while ((time_ns - start_ns_) / bucket_ns_ >= max_buckets) {
        double_width();
    }
    const Values before = buckets_.back().last;
    const auto index = static_cast<std::size_t>((time_ns - start_ns_) / bucket_ns_);
    if (index >= buckets_.size()) {
        buckets_.resize(index + 1);
        // The bucket starts with the values before it.
        buckets_.back() = {.min = before, .max = before, .last = before, .used = true};
    }
    latest_start_ns_ = start_ns_ + index * bucket_ns_;
    latest_width_ns_ = bucket_ns_;
    extend(buckets_.back(), values);
    buckets_.back().last = values;
}

template <std::size_t curves>
void TimelineOf<curves>::double_width() {
    bucket_ns_ *= 2;
    const std::size_t merged = (buckets_.size() + 1) / 2;
    for (std::size_t i = 0; i < merged; ++i) {
        Bucket result = buckets_[2 * i];
        if (2 * i + 1 < buckets_.size() && buckets_[2 * i + 1].used) {
            const Bucket& second = buckets_[2 * i + 1];
            if (result.used) {
                extend(result, second.min);
                extend(result, second.max);
                result.last = second.last;
            } else {
                result = second;
            }
        }
        buckets_[i] = result;
    }
    buckets_.resize(merged);
}

template class TimelineOf<curve_count>;
template class TimelineOf<1>;

}  // namespace memlab::trace
