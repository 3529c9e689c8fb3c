// Curves over time, downsampled to at most `max_buckets` buckets of equal width, each with the
// minimum, maximum and last value of every curve. When time passes the last bucket, neighbours are
// merged and the width doubles. Merging keeps minima, maxima and last values, so a curve's peak is
// exact for any length of recording, and the result depends only on the values and the final width.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace memlab::trace {

inline constexpr std::size_t curve_count = 5;

/// A curve of bytes over time: the current value, its maximum and the time when that was reached.
struct Curve {
    std::uint64_t current = 0;
    std::uint64_t peak = 0;
    std::uint64_t peak_time_ns = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.current, self.peak, self.peak_time_ns);
    }
};

template <std::size_t curves>
class TimelineOf {
  public:
    static constexpr std::size_t max_buckets = 1024;
    static constexpr std::uint64_t first_bucket_ns = 1024;
    /// Marks a value that is not known yet.
    static constexpr std::uint64_t unknown = ~std::uint64_t{0};

    using Values = std::array<std::uint64_t, curves>;

    struct Bucket {
        Values min;
        Values max;
        Values last;
        bool used = false;  ///< has values

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.min, self.max, self.last, self.used);
        }
    };

    /// How a change may move the curves: all but the last only up, only down, or any of them.
    enum class Change : std::uint8_t { rise, fall, any };

    /// The curves have `values` from `time_ns` on. Times must not decrease. May throw
    /// std::bad_alloc. Amortized constant time. A rise cannot make a new minimum, nor a fall a new
    /// maximum, which saves half of the work.
    template <Change change = Change::any>
    void record(std::uint64_t time_ns, const Values& values) {
        // Unsigned: wraps before the latest bucket, and while there is none.
        if (time_ns - latest_start_ns_ >= latest_width_ns_) {
            record_in_new_bucket(time_ns, values);
            return;
        }
        Bucket& bucket = buckets_.back();
        if constexpr (change == Change::any) {
            extend(bucket, values);
            bucket.last = values;
        } else {
#pragma GCC unroll 8
            for (std::size_t curve = 0; curve < curves - 1; ++curve) {
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
    /// By time; those that are not `used` are empty.
    const std::vector<Bucket>& buckets() const {
        return buckets_;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.buckets_, self.start_ns_, self.bucket_ns_);
        if constexpr (Archive::reading) {
            if (!self.buckets_.empty()) {
                self.latest_width_ns_ = self.bucket_ns_;
                self.latest_start_ns_ =
                    self.start_ns_ + (self.buckets_.size() - 1) * self.bucket_ns_;
            }
        }
    }
    /// Whether a restored state is consistent at `now_ns`.
    bool valid(std::uint64_t now_ns) const {
        return buckets_.size() <= max_buckets && start_ns_ <= now_ns &&
               bucket_ns_ >= first_bucket_ns && (bucket_ns_ & (bucket_ns_ - 1)) == 0 &&
               bucket_ns_ <= std::uint64_t{1} << 54 && (buckets_.empty() || buckets_.back().used);
    }

  private:
    static void extend(Bucket& bucket, const Values& values) {
        for (std::size_t curve = 0; curve < curves; ++curve) {
            // `unknown` is the largest number: the minimum prefers known values, and so does the
            // maximum of values + 1, where it wraps to 0.
            bucket.min[curve] = std::min(bucket.min[curve], values[curve]);
            bucket.max[curve] = std::max(bucket.max[curve] + 1, values[curve] + 1) - 1;
        }
    }
    void record_in_new_bucket(std::uint64_t time_ns, const Values& values);
    void double_width();

    std::vector<Bucket> buckets_;  ///< the last one is the latest
    std::uint64_t start_ns_ = 0;
    std::uint64_t bucket_ns_ = first_bucket_ns;
    std::uint64_t latest_start_ns_ = 0;
    std::uint64_t latest_width_ns_ = 0;  ///< bucket_ns_, or 0 before the start
};

/// Of a device's curves.
using Timeline = TimelineOf<curve_count>;

extern template class TimelineOf<curve_count>;
extern template class TimelineOf<1>;

}  // namespace memlab::trace
