// A bounded picture of curves over time: at most `max_buckets` buckets of equal width, each with
// the minimum, maximum and last value of every curve in it. When time runs past the last bucket,
// neighbours are merged and the width doubles. Merging keeps minima, maxima and last values, so
// that a curve's peak is exact however long the recording is, and the result depends on the values
// and the final width alone, not on when the doublings happened.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace memlab::trace {

inline constexpr std::size_t curve_count = 5;

class Timeline {
  public:
    static constexpr std::size_t max_buckets = 1024;
    static constexpr std::uint64_t first_bucket_ns = 1024;
    /// A value that is not known yet.
    static constexpr std::uint64_t unknown = ~std::uint64_t{0};

    using Values = std::array<std::uint64_t, curve_count>;

    struct Bucket {
        Values min;
        Values max;
        Values last;
        bool used = false;  ///< something happened in it
    };

    /// What a change may have done to the curves but the last; `any` of them, the last too.
    enum class Change : std::uint8_t { rise, fall, any };

    /// The curves have `values` from `time_ns` on. Times must not decrease. May throw
    /// std::bad_alloc. Amortized constant time; most changes are cheap, since what only rose has no
    /// new minimum, and what only fell no new maximum.
    template <Change change = Change::any>
    void record(std::uint64_t time_ns, const Values& values) {
        // Unsigned: before the latest bucket, which is before there is one, it wraps.
        if (time_ns - latest_start_ns_ >= latest_width_ns_) {
            record_in_another(time_ns, values);
            return;
        }
        Bucket& bucket = buckets_.back();
        if constexpr (change == Change::any) {
            extend(bucket, values);
            bucket.last = values;
        } else {
#pragma GCC unroll 8
            for (std::size_t curve = 0; curve < curve_count - 1; ++curve) {
                const std::uint64_t value = values[curve];
                if constexpr (change == Change::rise) {
                    bucket.max[curve] = std::max(bucket.max[curve], value);
                } else {
                    bucket.min[curve] = std::min(bucket.min[curve], value);
                }
                bucket.last[curve] = value;
            }
        }
    }

    std::uint64_t start_ns() const {
        return start_ns_;
    }
    std::uint64_t bucket_ns() const {
        return bucket_ns_;
    }
    /// By time; the ones that are not `used` hold nothing.
    const std::vector<Bucket>& buckets() const {
        return buckets_;
    }

  private:
    static void extend(Bucket& bucket, const Values& values) {
        for (std::size_t curve = 0; curve < curve_count; ++curve) {
            // `unknown` is the largest number: the plain minimum prefers what is known, and so does
            // the maximum of what comes one later.
            bucket.min[curve] = std::min(bucket.min[curve], values[curve]);
            bucket.max[curve] = std::max(bucket.max[curve] + 1, values[curve] + 1) - 1;
        }
    }
    void record_in_another(std::uint64_t time_ns, const Values& values);
    void double_width();

    std::vector<Bucket> buckets_;  ///< the last one is the latest
    std::uint64_t start_ns_ = 0;
    std::uint64_t bucket_ns_ = first_bucket_ns;
    std::uint64_t latest_start_ns_ = 0;
    std::uint64_t latest_width_ns_ = 0;  ///< bucket_ns_, or 0 before the start
};

}  // namespace memlab::trace
