// A bounded picture of curves over time: at most `max_buckets` buckets of equal width, each with
// the minimum, maximum and last value of every curve in it. When time runs past the last bucket,
// neighbours are merged and the width doubles. Merging keeps minima, maxima and last values, so
// that a curve's peak is exact however long the recording is, and the result depends on the values
// and the final width alone, not on when the doublings happened.
#pragma once

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

    /// The curves have `values` from `time_ns` on. Times must not decrease. May throw
    /// std::bad_alloc. Amortized constant time.
    void record(std::uint64_t time_ns, const Values& values);

    std::uint64_t start_ns() const { return start_ns_; }
    std::uint64_t bucket_ns() const { return bucket_ns_; }
    /// By time; the ones that are not `used` hold nothing.
    const std::vector<Bucket>& buckets() const { return buckets_; }

  private:
    void double_width();

    std::vector<Bucket> buckets_;
    std::uint64_t start_ns_ = 0;
    std::uint64_t bucket_ns_ = first_bucket_ns;
    Values current_{};
    bool started_ = false;
};

}  // namespace memlab::trace
