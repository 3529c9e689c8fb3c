// The union of the time spans in which GPUs had work, coarse enough to stay small.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace memlab::report {

/// Idle times shorter than `min_idle` count as busy. O(1) amortized for spans that are added nearly
/// in order. Thread-safety: none.
class BusyTimes {
  public:
    static constexpr std::uint64_t min_idle = 1'000'000;  ///< ns

    /// [begin, end], in ns.
    void add(std::uint64_t begin, std::uint64_t end) {
        auto at = spans_.end();
        while (at != spans_.begin() && std::prev(at)->begin > begin) {
            --at;
        }
        // `at` is the first span that begins later: merge with the previous, then with the
        // following.
        if (at != spans_.begin() && begin < saturated(std::prev(at)->end)) {
            --at;
            at->end = std::max(at->end, end);
        } else {
            at = spans_.insert(at, {begin, end});
        }
        auto next = std::next(at);
        while (next != spans_.end() && next->begin < saturated(at->end)) {
            at->end = std::max(at->end, next->end);
            ++next;
        }
        spans_.erase(std::next(at), next);
    }

    /// Whether there was work at any time in [begin, end].
    bool any_in(std::uint64_t begin, std::uint64_t end) const {
        // The first span that ends at or after `begin`: spans are disjoint, so ends are sorted,
        // too.
        const auto at =
            std::lower_bound(spans_.begin(), spans_.end(), begin,
                             [](const Span& span, std::uint64_t time) { return span.end < time; });
        return at != spans_.end() && at->begin <= end;
    }

    bool empty() const { return spans_.empty(); }

  private:
    struct Span {
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
    };
    static std::uint64_t saturated(std::uint64_t end) {
        return end + std::min(min_idle, ~std::uint64_t{0} - end);
    }

    std::vector<Span> spans_;  ///< by begin, at least min_idle apart
};

}  // namespace memlab::report
