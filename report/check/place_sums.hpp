// The places that are responsible for a figure, the largest first.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/check/limit.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report::check {

/// A place in the code and its part of a measurement.
struct Responsible {
    report::Place place;
    std::string kind;  ///< of memory; empty: several, or unknown
    Figure figure;
};

/// Sorts by figure and keeps the largest: no output shows more.
inline void keep_largest(std::vector<Responsible>& all) {
    constexpr std::size_t max_responsible = 10;
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.figure > b.figure; });
    all.resize(std::min(all.size(), max_responsible));
}

/// Sums of figures by place and kind.
class PlaceSums {
  public:
    void add(const report::Place& place, const std::string& kind, Figure figure) {
        Figure& sum = sums_[{place, kind}];
        sum = sum + figure;
    }
    std::vector<Responsible> largest() const {
        std::vector<Responsible> all;
        for (const auto& [key, figure] : sums_) {
            if (figure > Figure()) {
                all.push_back({key.first, key.second, figure});
            }
        }
        keep_largest(all);
        return all;
    }

  private:
    std::map<std::pair<report::Place, std::string>, Figure> sums_;
};

inline std::vector<Responsible> largest_holders(const report::HoldersSummary& holders) {
    std::vector<Responsible> all;
    for (const report::PlaceShare& share : holders.places) {
        all.push_back({share.place, share.kind, Figure::whole(share.bytes)});
    }
    keep_largest(all);
    return all;
}

}  // namespace memlab::report::check
