// Streaming minimum, median and maximum of durations. The median comes from a histogram with eight
// buckets per power of two: its error is at most 1/16 (6.25 %); durations below 8 ns are exact. A
// site's lifetimes are usually of few magnitudes, so only the range of buckets in use is stored.
// Counts have 32 bits; overflows are in a separate list, for the few sites that need it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace memlab::trace {

class Lifetimes {
  public:
    /// Adds `count` equal durations. May throw std::bad_alloc, without a change.
    void add(std::uint64_t duration_ns, std::uint64_t count = 1) {
        const std::size_t bucket = bucket_index(duration_ns);
        if (counts_.empty()) {
            counts_.resize(1);
            first_ = bucket;
        } else if (bucket < first_) {
            counts_.insert(counts_.begin(), first_ - bucket, 0);
            first_ = bucket;
        } else if (bucket - first_ >= counts_.size()) {
            counts_.resize(bucket - first_ + 1);
        }
        const std::uint64_t sum = counts_[bucket - first_] + count;
        if (sum >> 32 != 0) [[unlikely]] {
            carry(bucket, static_cast<std::uint32_t>(sum >> 32));
        }
        counts_[bucket - first_] = static_cast<std::uint32_t>(sum);
        min_ = std::min(min_, duration_ns);
        max_ = std::max(max_, duration_ns);
    }

    bool empty() const { return counts_.empty(); }
    std::uint64_t min() const { return min_; }
    std::uint64_t max() const { return max_; }

    /// The lower median, rounded to the middle of its bucket. 0 when empty.
    std::uint64_t median() const {
        std::uint64_t total = 0;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            total += count_at(i);
        }
        std::uint64_t before = 0;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            before += count_at(i);
            if (before >= total - total / 2) {
                return std::clamp(bucket_middle(first_ + i), min_, max_);
            }
        }
        return 0;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.counts_, self.carries_, self.first_);
        if (!self.counts_.empty()) {
            archive(self.min_, self.max_);
        }
    }
    /// Whether a restored state is consistent.
    bool valid() const {
        constexpr std::size_t buckets = 8 * 62;
        return first_ < buckets && counts_.size() <= buckets - first_ &&
               (counts_.empty() || min_ <= max_);
    }

  private:
    /// The upper 32 bits of a bucket's count.
    struct Carry {
        std::size_t bucket = 0;
        std::uint32_t upper = 0;

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.bucket, self.upper);
        }
    };
    void carry(std::size_t bucket, std::uint32_t by) {
        if (carries_ == nullptr) {
            carries_ = std::make_unique<std::vector<Carry>>();
        }
        for (Carry& known : *carries_) {
            if (known.bucket == bucket) {
                known.upper += by;
                return;
            }
        }
        carries_->push_back({bucket, by});
    }
    std::uint64_t count_at(std::size_t i) const {
        std::uint64_t count = counts_[i];
        if (carries_ != nullptr) {
            for (const Carry& carry : *carries_) {
                count += carry.bucket == first_ + i ? std::uint64_t{carry.upper} << 32 : 0;
            }
        }
        return count;
    }

    static std::size_t bucket_index(std::uint64_t value) {
        if (value < 8) {
            return static_cast<std::size_t>(value);
        }
        const auto exponent = static_cast<std::size_t>(std::bit_width(value)) - 1;
        return 8 * (exponent - 2) + ((value >> (exponent - 3)) & 7);
    }
    static std::uint64_t bucket_middle(std::size_t bucket) {
        if (bucket < 16) {
            return bucket;
        }
        const std::size_t shift = bucket / 8 - 1;  // the bucket is 2^shift wide
        return ((std::uint64_t{8} + bucket % 8) << shift) + (std::uint64_t{1} << (shift - 1));
    }

    std::vector<std::uint32_t> counts_;
    std::unique_ptr<std::vector<Carry>> carries_;  ///< null: none
    std::size_t first_ = 0;
    std::uint64_t min_ = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t max_ = 0;
};

}  // namespace memlab::trace
