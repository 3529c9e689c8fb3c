#include "profiler/trace/timeline.hpp"

#include <algorithm>

namespace memlab::trace {
namespace {

std::uint64_t larger_known(std::uint64_t a, std::uint64_t b) {
    if (a == Timeline::unknown) {
        return b;
    }
    return b == Timeline::unknown ? a : std::max(a, b);
}

/// `unknown` is the largest number: the plain minimum prefers what is known.
void extend(Timeline::Bucket& bucket, const Timeline::Values& values) {
    for (std::size_t curve = 0; curve < curve_count; ++curve) {
        bucket.min[curve] = std::min(bucket.min[curve], values[curve]);
        bucket.max[curve] = larger_known(bucket.max[curve], values[curve]);
    }
}

}  // namespace

void Timeline::record(std::uint64_t time_ns, const Values& values) {
    if (!started_) {
        started_ = true;
        start_ns_ = time_ns;
        current_ = values;
    }
    while ((time_ns - start_ns_) / bucket_ns_ >= max_buckets) {
        double_width();
    }
    const auto index = static_cast<std::size_t>((time_ns - start_ns_) / bucket_ns_);
    if (index >= buckets_.size()) {
        buckets_.resize(index + 1);
    }
    Bucket& bucket = buckets_[index];
    if (!bucket.used) {
        bucket.used = true;
        bucket.min = bucket.max = current_;  // the value on entry
    }
    extend(bucket, values);
    bucket.last = values;
    current_ = values;
}

void Timeline::double_width() {
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

}  // namespace memlab::trace
